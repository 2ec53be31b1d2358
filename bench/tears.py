"""Offsets at which responses are cut: each offset of each kind of call in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

MAX_COUNT: Final = 255  # maximum count for an offset


@dataclass(slots=True)
class Tears:
    """Counts of cut responses. `times` has by kind the number of cuts after 0, 1, 2 … bytes."""

    kinds: Sequence[str]
    times: dict[str, bytearray] = field(default_factory=dict)
    count: int = 0
    _turn: dict[str, int] = field(default_factory=dict)

    def add_response(self, kind: str, size: int) -> None:
        """Record the size of a complete response of a kind, whose offsets are to be cut."""
        if kind in self.kinds:
            counts = self.times.setdefault(kind, bytearray())
            counts.extend(bytes(max(0, size + 1 - len(counts))))

    def offset(self, kind: str) -> int | None:
        """Return the next offset for a kind, among those with the fewest cuts; None without a response."""
        times = self.times.get(kind)
        if times is None:
            return None
        fewest, start = bytes([min(times)]), self._turn.get(kind, 0)
        position = times.find(fewest, start)
        if position < 0:
            position = times.find(fewest)
        self._turn[kind] = position + 1
        return position

    def record(self, kind: str, offset: int) -> None:
        """Count a cut."""
        self.count += 1
        times = self.times[kind]
        times[offset] = min(MAX_COUNT, times[offset] + 1)

    @property
    def unmet(self) -> dict[str, int]:
        """Number of offsets without a cut, by kind; 1 for kinds without a response."""
        return {kind: self.times[kind].count(0) if kind in self.times else 1 for kind in self.kinds}

    @property
    def most_lacking(self) -> str | None:
        """The kind of call with the most offsets without a cut; None if every offset was cut."""
        count, kind = max((count, kind) for kind, count in self.unmet.items())
        return kind if count else None

    @property
    def covered(self) -> tuple[int, int]:
        """The number of offsets at which a call was cut, and that of all offsets."""
        every = sum(len(times) for times in self.times.values())
        return every - sum(times.count(0) for times in self.times.values()), every
