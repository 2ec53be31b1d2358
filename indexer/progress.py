"""How far a run is: counts, rates and an estimate of what is left, from the clock that was passed in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from chainfolio.seams import Clock

WINDOW_S = 20.0


@dataclass(slots=True)
class Progress:
    """Blocks and events done out of a known number of blocks. Rates and the estimate look at the last 20 seconds."""

    clock: Clock
    blocks_total: int
    blocks: int = 0
    events: int = 0
    requests: int = 0
    restored: int = 0
    rows: int = 0
    on_change: Callable[[Progress], None] = lambda progress: None
    _start_s: float = field(init=False)
    _seen: deque[tuple[float, int, int]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._start_s = self.clock.monotonic_s()
        self._seen = deque([(self._start_s, 0, 0)])

    def add(self, *, blocks: int = 0, events: int = 0, restored: int = 0, requests: int | None = None) -> None:
        """Count what was just done and tell whoever watches."""
        self.blocks += blocks
        self.events += events
        self.restored += restored
        if requests is not None:
            self.requests = requests
        now_s = self.clock.monotonic_s()
        self._seen.append((now_s, self.blocks, self.events))
        while len(self._seen) > 2 and self._seen[0][0] < now_s - WINDOW_S:
            self._seen.popleft()
        self.on_change(self)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self.clock.monotonic_s() - self._start_s

    @property
    def rates(self) -> tuple[float, float]:
        """Blocks and events a second, lately."""
        (then_s, blocks, events), (now_s, blocks_now, events_now) = self._seen[0], self._seen[-1]
        spent_s = max(now_s - then_s, 1e-6)
        return (blocks_now - blocks) / spent_s, (events_now - events) / spent_s

    @property
    def eta_s(self) -> float | None:
        """Seconds left; None before anything is done."""
        rate, _ = self.rates
        return (self.blocks_total - self.blocks) / rate if rate > 0 else None
