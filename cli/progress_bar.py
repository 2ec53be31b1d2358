"""How far a run is, on standard error: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol


class Watch(Protocol):
    """Is told the share that is done (1 at the end), the seconds since the start, and how to say where the run is."""

    def __call__(self, share: float, seconds: float, describe: Callable[[], str]) -> None:
        """Show it, where it is time to."""

    def clear(self) -> None:
        """Make room for a line of the run's own output."""


def watch(name: str) -> Watch:
    """The right one for where standard error goes."""
    return Bar(name) if sys.stderr.isatty() else Lines(name)


class Lines:
    """A line every five seconds, for logs."""

    def __init__(self, name: str) -> None:
        self.name, self._next_s = name, 5.0

    def __call__(self, share: float, seconds: float, describe: Callable[[], str]) -> None:
        """Write one, where the last is old enough."""
        if seconds >= self._next_s:
            self._next_s = seconds + 5
            print(f"{self.name}: {describe()}", file=sys.stderr)

    def clear(self) -> None:
        """Lines are in nobody's way."""


class Bar:
    """One line of a terminal, drawn over and over."""

    def __init__(self, name: str) -> None:
        self.name, self._next_s = name, 0.0

    def __call__(self, share: float, seconds: float, describe: Callable[[], str]) -> None:
        """Draw it anew, ten times a second at most, and at the end."""
        done = share >= 1
        if seconds < self._next_s and not done:
            return
        self._next_s = seconds + 0.1
        bar = "█" * int(16 * share) + "░" * (16 - int(16 * share))
        sys.stderr.write(f"\r\x1b[2K{self.name} {bar} {describe()}" + ("\n" if done else ""))
        sys.stderr.flush()

    def clear(self) -> None:
        """Wipe it off; the next call draws it again."""
        self._next_s = 0.0
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


def clock(seconds: float) -> str:
    """Seconds as people say them."""
    whole = int(seconds + 0.5)
    if whole < 90:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 5400 else f"{whole // 3600} h {whole % 3600 // 60} min"
