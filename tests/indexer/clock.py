"""A clock that a test moves by hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ManualClock:
    """A clock that stands still until `advance`; a sleep moves it."""

    now_s: float = 1_000.0

    def now_us(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        return int(self.now_s * 1_000_000)

    def monotonic_s(self) -> float:
        """Seconds."""
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Time passes."""
        self.now_s += seconds
