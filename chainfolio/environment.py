"""The outside world as parameters: clock, randomness, files. Real ones here, simulated ones in tests."""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from chainfolio.memory import ByteBudget


class Clock(Protocol):
    """Time: `now_us` for the calendar, `monotonic_s` for durations."""

    def now_us(self) -> int:
        """Return microseconds since 1970-01-01 UTC."""

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never jumps."""

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the loop."""


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Return microseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never jumps."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the loop."""
        await asyncio.sleep(seconds)


class Files(Protocol):
    """The few things done to files directly; everything else goes through a library's own store."""

    def read(self, path: Path) -> bytes:
        """Return the whole file; OSError if it cannot be read."""

    def replace(self, path: Path, data: bytes) -> None:
        """Write so that a reader sees the old file or the new one, never half; durable on return."""


class LocalFiles:
    """The machine's file system."""

    def read(self, path: Path) -> bytes:
        """Return the whole file; OSError if it cannot be read."""
        return path.read_bytes()

    def replace(self, path: Path, data: bytes) -> None:
        """Write a file so that a reader sees the old one or the new one, never half; durable on return.

        Missing folders are made.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@dataclass(frozen=True, slots=True)
class Environment:
    """Clock, randomness, files, and the limit of response bytes.

    Transport and state store are passed separately.
    """

    clock: Clock = field(default_factory=SystemClock)
    random: random.Random = field(default_factory=random.SystemRandom)
    files: Files = field(default_factory=LocalFiles)
    answers: ByteBudget = field(default_factory=ByteBudget)
