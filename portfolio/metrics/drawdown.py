"""The drawdown: the largest fall of a value from a peak."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from chainfolio.portfolio.metrics.time_weighted import growths
from chainfolio.portfolio.metrics.value_series import Point


class Drawdown(NamedTuple):
    """The part of the peak that was lost (1/2: half of it), and when the peak and the lowest point after it were."""

    part: Fraction
    peak_us: int
    low_us: int


def drawdown(series: Sequence[Point]) -> Drawdown | None:
    """The largest fall, of the growth of one unit, so that what the owner takes out is no fall. None where it cannot be
    said: with fewer than two points, or as for the time-weighted return."""
    if len(series) < 2:
        return None
    peak, peak_us = Fraction(1), series[0].time_us
    largest = Drawdown(Fraction(0), peak_us, peak_us)
    for point, unit_growth in zip(series, growths(series), strict=True):
        if unit_growth is None:
            return None
        if unit_growth >= peak:
            peak, peak_us = unit_growth, point.time_us
        elif (part := 1 - unit_growth / peak) > largest.part:
            largest = Drawdown(part, peak_us, point.time_us)
    return largest
