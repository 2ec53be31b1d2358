"""Health of an endpoint: height, latency, recent failures, and the evidence against it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

# Other endpoints are preferred if more than half of the recent exchanges failed,
RECENT_EXCHANGES = 16
MIN_EXCHANGES = 4
# if an endpoint is more than so many blocks behind the best,
LAG_BLOCKS = 5
# or if it is so many times slower than the fastest, and slower than NOTICEABLE_S.
SLOWER, NOTICEABLE_S = 4.0, 0.25  # floats: seconds and ratios, nothing of a chain
SMOOTHING = 0.2
# A second endpoint is used once the first takes longer than for this share of its earlier reads of the same kind.
HEDGE_AT = 0.95
HEDGE_SAMPLES, HEDGE_KEPT, HEDGE_LEAST_S = 16, 64, 0.05


class Evidence(msgspec.Struct, frozen=True, rename="camel"):
    """Evidence for which an endpoint is quarantined.

    Attributes:
        chain: Key of the chain.
        endpoint: Its name, without secrets.
        asked: The question, in words.
        given: Its answer.
        truth: The right answer, and whose it is.
        time_us: When the contradiction was noticed (UTC, µs).
    """

    chain: str
    endpoint: str
    asked: str
    given: str
    truth: str
    time_us: int


@dataclass(slots=True)
class Health:
    """State of one endpoint.

    `height` is its newest block and `head_us` the time of that block (UTC, µs); None before a read.
    """

    height: int | None = None
    head_us: int | None = None
    latency_s: float | None = None
    evidence: Evidence | None = None
    _successes: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT_EXCHANGES))
    _durations_s: dict[str, deque[float]] = field(default_factory=dict)

    def record_exchange(self, duration_s: float) -> None:
        """Count a successful exchange, and update the latency, a moving average."""
        self._successes.append(True)
        before_s = self.latency_s
        self.latency_s = duration_s if before_s is None else before_s + SMOOTHING * (duration_s - before_s)

    def record_failure(self) -> None:
        """Count a failed exchange."""
        self._successes.append(False)

    def clear_failures(self) -> None:
        """Forget all recent exchanges, so that the endpoint is used again after a pause."""
        self._successes.clear()

    @property
    def faults(self) -> int:
        """Number of failures among the recent exchanges."""
        return self._successes.count(False)

    @property
    def is_faulty(self) -> bool:
        """True if more than half of the recent exchanges failed; False while there are too few."""
        return len(self._successes) >= MIN_EXCHANGES and 2 * self.faults > len(self._successes)

    def record_read(self, kind: str, duration_s: float) -> None:
        """Store how long a read of a kind took."""
        self._durations_s.setdefault(kind, deque(maxlen=HEDGE_KEPT)).append(duration_s)

    def patience_s(self, kind: str) -> float | None:
        """Return the seconds that all but 5 % of the recent reads of a kind took, at least HEDGE_LEAST_S.

        None while fewer than HEDGE_SAMPLES reads are recorded.
        """
        durations_s = sorted(self._durations_s.get(kind, ()))
        if len(durations_s) < HEDGE_SAMPLES:
            return None
        return max(HEDGE_LEAST_S, durations_s[min(len(durations_s) - 1, int(len(durations_s) * HEDGE_AT))])

    def rank(self, best_height: int, best_latency_s: float | None) -> tuple[bool, bool, bool]:
        """Return a sort key, smaller is better: whether the endpoint lags, fails, is slow."""
        lags = self.height is not None and best_height - self.height > LAG_BLOCKS
        slow = (
            self.latency_s is not None
            and best_latency_s is not None
            and self.latency_s > max(NOTICEABLE_S, SLOWER * best_latency_s)
        )
        return lags, self.is_faulty, slow

    def lag_blocks(self, best_height: int | None) -> int | None:
        """Return the number of blocks behind the best endpoint; None if one of the heights is unknown."""
        return None if best_height is None or self.height is None else max(0, best_height - self.height)
