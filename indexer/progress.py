"""How far a run is: counts, rates and an estimate of what is left, from the clock that was passed in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from chainfolio.seams import Clock

WINDOW_S = 20.0


@dataclass(slots=True)
class Progress:
    """Blocks and events done out of a known number of blocks. A block counts once for each part of the work that reads
    it; `heights` are the blocks themselves (0: as many). Rates and the estimate look at the last 20 seconds.

    The first chunk goes alone and pays for all that is loaded and learnt: it is no measure of what follows. A chunk on
    its way counts for the part of it that is likely done, since those that were begun together come back together.
    """

    clock: Clock
    blocks_total: int
    blocks: int = 0
    events: int = 0
    requests: int = 0
    restored: int = 0
    rows: int = 0
    heights: int = 0
    on_change: Callable[[Progress], None] = lambda progress: None
    _start_s: float = field(init=False)
    _seen: deque[tuple[float, float, int]] = field(init=False, repr=False)
    _flying: deque[tuple[float, int]] = field(init=False, repr=False)
    _took_s: deque[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._start_s = self.clock.monotonic_s()
        self._seen = deque([(self._start_s, 0.0, 0)])
        self._flying, self._took_s = deque(), deque(maxlen=8)

    def begin(self, blocks: int) -> None:
        """A chunk was sent for. Those that are begun here are done in the order in which they were begun."""
        self._flying.append((self.clock.monotonic_s(), blocks))

    def add(
        self, *, blocks: int = 0, events: int = 0, restored: int = 0, requests: int | None = None, begun: bool = False
    ) -> None:
        """Count what was just done and tell whoever watches; `begun` for a chunk that `begin` was told of."""
        self.blocks += blocks
        self.events += events
        self.restored += restored
        if requests is not None:
            self.requests = requests
        now_s = self.clock.monotonic_s()
        if begun:
            begun_s, _ = self._flying.popleft()
            if len(self._seen) > 1:
                self._took_s.append(now_s - begun_s)
        self._seen.append((now_s, self.blocks + self._likely(now_s), self.events))
        while len(self._seen) > 2 and (self._seen[0][0] < now_s - WINDOW_S or self._is_first(now_s)):
            self._seen.popleft()
        self.on_change(self)

    def _is_first(self, now_s: float) -> bool:
        """Whether the oldest thing seen is the start, and more than the first chunk has come back since."""
        return self._seen[0][0] == self._start_s and self._seen[1][0] < now_s

    def _likely(self, now_s: float) -> float:
        """Blocks on their way that are likely done: a chunk takes as long as the slowest of the last ones did."""
        usual_s = max(self._took_s, default=0.0)
        return sum(blocks * min(1.0, (now_s - then_s) / usual_s) for then_s, blocks in self._flying if usual_s > 0)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self.clock.monotonic_s() - self._start_s

    @property
    def rates(self) -> tuple[float, float]:
        """Blocks and events a second, lately."""
        (then_s, blocks, events), (now_s, blocks_now, events_now) = self._seen[0], self._seen[-1]
        spent_s = max(now_s - then_s, 1e-6)
        return (blocks_now - blocks) * self._once / spent_s, (events_now - events) / spent_s

    @property
    def _once(self) -> float:
        """Blocks for one block that is read: less than one where several parts of the work read it."""
        return self.heights / self.blocks_total if self.heights and self.blocks_total else 1.0

    @property
    def eta_s(self) -> float | None:
        """Seconds left; None before anything is done."""
        rate, _ = self.rates
        return max(0.0, self.blocks_total - self._seen[-1][1]) * self._once / rate if rate > 0 else None
