"""Time-weighted growth: what one unit of money would have become, whatever was paid in and taken out meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from chainfolio.portfolio.metrics.value_series import Point, check, growth


def growths(series: Sequence[Point]) -> list[Fraction | None]:
    """What one unit of money had become by each point, 1 at the first. None from the first period on whose growth
    nobody knows."""
    check(series)
    cumulative: list[Fraction | None] = [Fraction(1)] if series else []
    for start, end in pairwise(series):
        last, step = cumulative[-1], growth(start, end)
        cumulative.append(None if last is None or step is None else last * step)
    return cumulative
