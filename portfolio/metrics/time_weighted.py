"""Time-weighted growth: that of one unit of money, independent of payments in and out."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from chainfolio.portfolio.metrics.value_series import Point, check, growth


def growths(series: Sequence[Point]) -> list[Fraction | None]:
    """Return the growth of one unit of money up to each point, 1 at the first.

    None from the first period whose growth is not known.
    """
    check(series)
    cumulative: list[Fraction | None] = [Fraction(1)] if series else []
    for start, end in pairwise(series):
        last, step = cumulative[-1], growth(start, end)
        cumulative.append(None if last is None or step is None else last * step)
    return cumulative
