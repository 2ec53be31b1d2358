"""The drawdown: the largest fall of a value from a peak."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from portfolio.metrics.value_series import Point, check


class Drawdown(NamedTuple):
    """The part of the peak that was lost (1/2: half of it), and when the peak and the lowest point after it were."""

    part: Fraction
    peak_us: int
    low_us: int


def drawdown(series: Sequence[Point]) -> Drawdown | None:
    """The largest fall, of the growth of one unit, so that what the owner takes out is no fall. None where it cannot be
    said: with fewer than two points, or as for the time-weighted return."""
    check(series)
    if len(series) < 2:
        return None
    grown, peak, peak_us = Fraction(1), Fraction(1), series[0].time_us
    largest = Drawdown(Fraction(0), peak_us, peak_us)
    before = series[0].value
    for point in series[1:]:
        if before is None or point.value is None or before <= 0:
            return None
        grown *= (Fraction(point.value) - Fraction(point.flow)) / Fraction(before)
        before = point.value
        if grown >= peak:
            peak, peak_us = grown, point.time_us
        elif (part := 1 - grown / peak) > largest.part:
            largest = Drawdown(part, peak_us, point.time_us)
    return largest
