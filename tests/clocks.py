"""The machine's clock, made faster: what waits between two tries is short in a test."""

from __future__ import annotations

import asyncio
import time

from chainfolio.environment import SystemClock


class FastClock(SystemClock):
    """A clock on which `speed` seconds pass in one."""

    def __init__(self, speed: float = 20) -> None:
        self._speed = speed

    def monotonic_s(self) -> float:
        """Return seconds, `speed` of them for each second of the machine."""
        return time.monotonic() * self._speed

    async def sleep(self, seconds: float) -> None:
        """Wait for a part of the time."""
        await asyncio.sleep(seconds / self._speed)
