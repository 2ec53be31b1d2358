"""After how many bytes of their answers calls were left: of each kind of call, each number of bytes in its turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

MAX_COUNT: Final = 255  # times that are counted of one offset


@dataclass(slots=True)
class Tears:
    """`times` has for each kind how often a call was left after 0, 1, 2 … bytes of its answer, up to all of it."""

    kinds: Sequence[str]
    times: dict[str, bytearray] = field(default_factory=dict)
    count: int = 0
    _turn: dict[str, int] = field(default_factory=dict)

    def learn(self, kind: str, size: int) -> None:
        """A whole answer had so many bytes."""
        if kind in self.kinds:
            counts = self.times.setdefault(kind, bytearray())
            counts.extend(bytes(max(0, size + 1 - len(counts))))

    def offset(self, kind: str) -> int | None:
        """Where to leave the next call of a kind: in turn at those offsets where it was done least; None where no
        answer is known yet."""
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
        """It was done."""
        self.count += 1
        times = self.times[kind]
        times[offset] = min(MAX_COUNT, times[offset] + 1)

    @property
    def unmet(self) -> dict[str, int]:
        """At how many offsets of the answers to each kind of call nobody has left yet; 1 where no answer is known."""
        return {kind: self.times[kind].count(0) if kind in self.times else 1 for kind in self.kinds}

    @property
    def most_lacking(self) -> str | None:
        """The kind of call that has most of them; None where there is no such offset."""
        most, kind = max((count, kind) for kind, count in self.unmet.items())
        return kind if most else None

    @property
    def covered(self) -> tuple[int, int]:
        """At how many offsets a call was left, and how many there are."""
        every = sum(len(times) for times in self.times.values())
        return every - sum(times.count(0) for times in self.times.values()), every
