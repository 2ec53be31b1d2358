"""How well an endpoint does: its height, its speed, its recent faults, and the evidence where it was caught lying."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

# Of the last so many exchanges more than half failed: others are asked first.
RECENT = 16
FEWEST = 4
# So many blocks behind the best: others are asked first.
LAG_BLOCKS = 5
# So many times slower than the fastest, and noticeably so: others are asked first.
SLOWER, NOTICEABLE_S = 4.0, 0.25  # floats: seconds and ratios, nothing of a chain
SMOOTHING = 0.2
# A second endpoint is asked once the first has taken longer than this share of its earlier answers to such a question.
HEDGE_AT = 0.95
HEDGE_SAMPLES, HEDGE_KEPT, HEDGE_LEAST_S = 16, 64, 0.05


class Evidence(msgspec.Struct, frozen=True, rename="camel"):
    """Why an endpoint is quarantined: what it was asked, what it gave, what is true and by whom, and when (UTC, µs)."""

    chain: str
    endpoint: str
    asked: str
    given: str
    truth: str
    time_us: int


@dataclass(slots=True)
class Health:
    """Kept by an endpoint of itself. `height` is the newest it claimed, `head_us` the time of that block; None before
    it was asked."""

    height: int | None = None
    head_us: int | None = None
    latency_s: float | None = None
    evidence: Evidence | None = None
    _went_well: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT))
    _took_s: dict[str, deque[float]] = field(default_factory=dict)

    def exchanged(self, took_s: float) -> None:
        """An exchange came to an end, and so long it took: the latency is an average that forgets."""
        self._went_well.append(True)
        before_s = self.latency_s
        self.latency_s = took_s if before_s is None else before_s + SMOOTHING * (took_s - before_s)

    def failed(self) -> None:
        """An exchange came to nothing."""
        self._went_well.append(False)

    def pardon(self) -> None:
        """Forget its faults: it was left alone for a while, and gets another chance."""
        self._went_well.clear()

    @property
    def faults(self) -> int:
        """How many of the last exchanges came to nothing."""
        return self._went_well.count(False)

    @property
    def is_faulty(self) -> bool:
        """Whether more than half of the last exchanges came to nothing."""
        return len(self._went_well) >= FEWEST and 2 * self.faults > len(self._went_well)

    def read(self, kind: str, took_s: float) -> None:
        """A whole read of some kind was answered."""
        self._took_s.setdefault(kind, deque(maxlen=HEDGE_KEPT)).append(took_s)

    def patience_s(self, kind: str) -> float | None:
        """How long a read of some kind may take before another endpoint is asked, too; None while too few were seen."""
        seen = sorted(self._took_s.get(kind, ()))
        if len(seen) < HEDGE_SAMPLES:
            return None
        return max(HEDGE_LEAST_S, seen[min(len(seen) - 1, int(len(seen) * HEDGE_AT))])

    def rank(self, best_height: int, best_latency_s: float | None) -> tuple[bool, bool, bool]:
        """Smaller is better: whether it lags, fails, is slow. Equal ones stay in the order of the settings."""
        lags = self.height is not None and best_height - self.height > LAG_BLOCKS
        slow = (
            self.latency_s is not None
            and best_latency_s is not None
            and self.latency_s > max(NOTICEABLE_S, SLOWER * best_latency_s)
        )
        return lags, self.is_faulty, slow

    def lag_blocks(self, best_height: int | None) -> int | None:
        """How far it is behind the best; None where that is not known."""
        return None if best_height is None or self.height is None else max(0, best_height - self.height)
