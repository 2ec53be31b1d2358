"""The time-weighted return: what one unit of money would have become, whatever was paid in and taken out meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from portfolio.metrics.value_series import Point, check


def time_weighted(series: Sequence[Point]) -> Fraction | None:
    """The return over the series, 1/10 for ten per cent. None where a value is not known or a period begins with
    nothing or with debt: then there is no rate.

    Flows count at the end of their period. Where flows are large, points right before them make the rate exact.
    """
    check(series)
    if len(series) < 2:
        return None
    grown = Fraction(1)
    for before, after in pairwise(series):
        if before.value is None or after.value is None or before.value <= 0:
            return None
        grown *= (Fraction(after.value) - Fraction(after.flow)) / Fraction(before.value)
    return grown - 1
