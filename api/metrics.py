"""Prometheus metrics of the API in this process: requests, their durations, and credits.

Plain numbers that are written on the event loop and read at each scrape. No label comes from a request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from chainfolio.api.guard import Guard

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(slots=True)
class _Times:
    """Histogram of the durations of one operation: a count per bucket, and the sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def buckets(self) -> list[tuple[str, float]]:
        """Return the cumulative counts by upper bound, as Prometheus expects them."""
        counts: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], self.counts, strict=True):
            total += count
            counts.append((bound, total))
        return counts


@dataclass(slots=True, eq=False)
class Traffic:
    """Counters of the requests of one process. `credit_totals` is the meter's count of credits by kind."""

    credit_totals: Mapping[str, int] = field(default_factory=dict)
    in_flight: int = 0
    answered: Counter[tuple[str, int]] = field(default_factory=Counter)
    shed: int = 0
    guard: Guard | None = None
    _times: dict[str, _Times] = field(default_factory=dict)

    def note(self, operation: str, status: int, took_s: float) -> None:
        """Count an answered request."""
        self.answered[operation, status] += 1
        times = self._times.get(operation)
        if times is None:
            times = self._times[operation] = _Times()
        times.counts[bisect_left(BOUNDS_S, took_s)] += 1
        times.sum_s += took_s

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, for a Prometheus registry."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        answered = CounterMetricFamily("chainfolio_api_requests", "requests", labels=["operation", "status"])
        for (operation, status), count in sorted(self.answered.items()):
            answered.add_metric([operation, str(status)], count)
        took = HistogramMetricFamily("chainfolio_api_seconds", "from request to answer", labels=["operation"])
        for operation, times in sorted(self._times.items()):
            took.add_metric([operation], times.buckets(), times.sum_s)
        credits = CounterMetricFamily("chainfolio_credits", "credits moved, by kind", labels=["kind"])
        for kind, amount in sorted(self.credit_totals.items()):
            credits.add_metric([kind], amount)
        yield answered
        yield took
        yield credits
        yield CounterMetricFamily("chainfolio_api_shed", "requests refused because too many ran", value=self.shed)
        yield GaugeMetricFamily("chainfolio_api_in_flight", "requests that run now", value=self.in_flight)
        if self.guard is not None:
            yield GaugeMetricFamily("chainfolio_api_connections", "open connections", value=len(self.guard))
            ended = CounterMetricFamily("chainfolio_api_connections_ended", "connections ended", labels=["reason"])
            for reason, count in sorted(self.guard.ended.items()):
                ended.add_metric([reason], count)
            yield ended
