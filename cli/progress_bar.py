"""Progress of a run on standard error: a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System

MIN_SHOWN_S: Final = 1.0  # a shorter run shows no progress of its records


class ProgressWatcher(Protocol):
    """Receives the completed share (0 to 1), the seconds since the start, and the text."""

    def __call__(self, share: float, seconds: float, describe: Callable[[], str]) -> None:
        """Show the progress, if the last output is old enough."""

    def clear(self) -> None:
        """Clear the line, so that the run can print other lines."""


def watch(name: str) -> ProgressWatcher:
    """Return a bar if standard error is a terminal, else lines for a log."""
    return Bar(name) if sys.stderr.isatty() else Lines(name)


class Lines:
    """A line every five seconds, for logs."""

    def __init__(self, name: str) -> None:
        self.name, self._next_s = name, 5.0

    def __call__(self, share: float, seconds: float, describe: Callable[[], str]) -> None:
        """Print a line if five seconds have passed since the last one."""
        if seconds >= self._next_s:
            self._next_s = seconds + 5
            print(f"{self.name}: {describe()}", file=sys.stderr)

    def clear(self) -> None:
        """Do nothing: lines need no clearing."""


class Bar:
    """One line of a terminal, drawn over and over."""

    def __init__(self, name: str) -> None:
        self.name, self._next_s = name, 0.0

    def __call__(self, share: float, seconds: float, describe: Callable[[], str]) -> None:
        """Draw the bar again, at most ten times a second, and always at the end."""
        is_done = share >= 1
        if seconds < self._next_s and not is_done:
            return
        self._next_s = seconds + 0.1
        bar = "█" * int(16 * share) + "░" * (16 - int(16 * share))
        sys.stderr.write(f"\r\x1b[2K{self.name} {bar} {describe()}" + ("\n" if is_done else ""))
        sys.stderr.flush()

    def clear(self) -> None:
        """Clear the bar; the next call draws it again."""
        self._next_s = 0.0
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


def record_progress(name: str, system: System, *, quiet: bool) -> Callable[[int, int], None]:
    """Return a function that shows how many transactions of how many were read, as a bar.

    It shows nothing with `quiet`, or before MIN_SHOWN_S have passed.
    """
    clock_s, show = system.environment.clock.monotonic_s, watch(name)
    began_s = clock_s()

    def show_records(done: int, total: int) -> None:
        seconds = clock_s() - began_s
        if not quiet and total and seconds >= MIN_SHOWN_S:
            show(done / total, seconds, lambda: f"{done:,} of {total:,} transactions")

    return show_records


def duration_text(seconds: float) -> str:
    """Return a duration as text: rounded seconds below 90 s, else whole minutes that have passed.

    Examples: `89 s`, `2 min`, `1 h 30 min`.
    """
    whole_seconds = int(seconds + 0.5)
    if whole_seconds < 90:
        return f"{whole_seconds} s"
    return (
        f"{whole_seconds // 60} min"
        if whole_seconds < 5400
        else f"{whole_seconds // 3600} h {whole_seconds % 3600 // 60} min"
    )
