"""Progress of a run: counts, rates and the estimated remaining time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from chainfolio.environment import Clock

WINDOW_S = 20.0


@dataclass(slots=True)
class Progress:
    """Blocks and events done, of a known number of blocks.

    A block counts once per part of the work that reads it. `heights` is the number of distinct blocks; 0 for as many as
    blocks. Rates and the estimate use the last 20 seconds.

    The first chunk is read alone and includes one-time costs, so it is not used for rates. A pending chunk counts for
    its probable share, because chunks that start together end together.
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
    _samples: deque[tuple[float, float, int]] = field(init=False, repr=False)
    _running: deque[tuple[float, int]] = field(init=False, repr=False)
    _took_s: deque[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._start_s = self.clock.monotonic_s()
        self._samples = deque([(self._start_s, 0.0, 0)])
        self._running, self._took_s = deque(), deque(maxlen=8)

    def begin(self, blocks: int) -> None:
        """Record the start of a chunk. Chunks are finished in the order of their start."""
        self._running.append((self.clock.monotonic_s(), blocks))

    def add(
        self,
        *,
        blocks: int = 0,
        events: int = 0,
        restored: int = 0,
        requests: int | None = None,
        is_started: bool = False,
    ) -> None:
        """Add to the counts and call `on_change`.

        Args:
            requests: The number of requests so far, not an increase; None if unchanged.
            is_started: The blocks are a chunk that `begin` recorded.
        """
        self.blocks += blocks
        self.events += events
        self.restored += restored
        if requests is not None:
            self.requests = requests
        now_s = self.clock.monotonic_s()
        if is_started:
            start_s, _ = self._running.popleft()
            if len(self._samples) > 1:
                self._took_s.append(now_s - start_s)
        self._samples.append((now_s, self.blocks + self._likely(now_s), self.events))
        while len(self._samples) > 2 and (self._samples[0][0] < now_s - WINDOW_S or self._is_first(now_s)):
            self._samples.popleft()
        self.on_change(self)

    def _is_first(self, now_s: float) -> bool:
        """Return True if the oldest sample is the start, and more than the first chunk is done."""
        return self._samples[0][0] == self._start_s and self._samples[1][0] < now_s

    def _likely(self, now_s: float) -> float:
        """Return the probably finished blocks of pending chunks, from the slowest of the last chunks."""
        usual_s = max(self._took_s, default=0.0)
        return sum(blocks * min(1.0, (now_s - then_s) / usual_s) for then_s, blocks in self._running if usual_s > 0)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self.clock.monotonic_s() - self._start_s

    @property
    def rates(self) -> tuple[float, float]:
        """Blocks and events per second over the last 20 seconds."""
        (then_s, blocks, events), (now_s, blocks_now, events_now) = self._samples[0], self._samples[-1]
        spent_s = max(now_s - then_s, 1e-6)
        return (blocks_now - blocks) * self._distinct_share / spent_s, (events_now - events) / spent_s

    @property
    def _distinct_share(self) -> float:
        """Distinct blocks per counted block: below 1 if several parts of the work read the same blocks."""
        return self.heights / self.blocks_total if self.heights and self.blocks_total else 1.0

    @property
    def eta_s(self) -> float | None:
        """Remaining seconds; None before anything is done."""
        rate, _ = self.rates
        return max(0.0, self.blocks_total - self._samples[-1][1]) * self._distinct_share / rate if rate > 0 else None
