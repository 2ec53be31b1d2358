"""The value of a portfolio over time, with what its owner paid in and took out between two points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import NamedTuple

from chainfolio import amounts


class Point(NamedTuple):
    """The value at a moment, None where nobody knows it. `flow` is what came from outside since the point before it
    (negative: what was taken out), valued when it came; the value contains it."""

    time_us: int
    value: Decimal | None
    flow: Decimal = amounts.ZERO


def value_series(values: Mapping[int, Decimal | None], flows: Iterable[tuple[int, Decimal]] = ()) -> list[Point]:
    """Values by moment (microseconds) as a series by time. A flow belongs to the first value at or after it; one after
    the last value belongs to none. A value that is not known stays a gap: nothing is carried forward."""
    moments = sorted(values)
    sums = dict.fromkeys(moments, amounts.ZERO)
    rest = sorted(flows)
    place = 0
    for moment in moments:
        own = []
        while place < len(rest) and rest[place][0] <= moment:
            own.append(rest[place][1])
            place += 1
        sums[moment] = amounts.total(own)
    return [Point(moment, values[moment], sums[moment]) for moment in moments]


def check(series: Sequence[Point]) -> None:
    """Every metric wants its points in the order of time."""
    assert all(one.time_us < other.time_us for one, other in pairwise(series)), "a series goes forward in time"
