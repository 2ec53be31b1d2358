"""The drawdown: the largest fall of a value from a peak."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from chainfolio.portfolio.metrics.time_weighted import growths
from chainfolio.portfolio.metrics.value_series import Point


class Drawdown(NamedTuple):
    """The largest fall from a peak as a part of it (1/2: half), with the times of peak and lowest point."""

    part: Fraction
    peak_us: int
    low_us: int


def drawdown(series: Sequence[Point]) -> Drawdown | None:
    """Return the largest fall of the growth of one unit of money; withdrawals by the owner are no fall.

    Its part is 0 if nothing fell. None with fewer than two points, or if the growth up to a point is not known.
    """
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
