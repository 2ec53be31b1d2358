"""The value of a portfolio over time, with what its owner paid in and took out between two points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from chainfolio import amounts


class Flow(NamedTuple):
    """A value that came from outside at a time, in value of that time; negative if it was taken out."""

    time_us: int
    value: Decimal


class Point(NamedTuple):
    """The value at a time; None if not known.

    `flows` are those since the point before it, in order of time; the value includes them.
    """

    time_us: int
    value: Decimal | None
    flows: tuple[Flow, ...] = ()

    @property
    def flow(self) -> Decimal:
        """The sum of the flows."""
        return amounts.total([flow.value for flow in self.flows])


def value_series(values: Mapping[int, Decimal | None], flows: Iterable[Flow] = ()) -> list[Point]:
    """Return values by time (microseconds) as a series in order of time.

    A flow belongs to the first value after it; one at the time of a value comes after that value, and one after the
    last value belongs to none. An unknown value stays a gap: nothing is carried forward.
    """
    points, sorted_flows = list[Point](), sorted(flows)
    end = 0
    for time_us in sorted(values):
        start = end
        while end < len(sorted_flows) and sorted_flows[end].time_us < time_us:
            end += 1
        points.append(Point(time_us, values[time_us], tuple(sorted_flows[start:end])))
    return points


def growth(start: Point, end: Point) -> Fraction | None:
    """Return the growth of one unit of money between two points, by the modified Dietz method.

    It is one plus the gain divided by the capital. A flow counts in the capital for the part of the time that it was
    there, so money paid in earns only from then on, and is no gain itself. None if a value is not known, or if the
    capital is not above zero, except for a period in which everything is zero.
    """
    if start.value is None or end.value is None:
        return None
    capital, length_us = Fraction(start.value), end.time_us - start.time_us
    for flow in end.flows:
        capital += Fraction(flow.value) * Fraction(end.time_us - flow.time_us, length_us)
    gain = Fraction(end.value) - Fraction(start.value) - Fraction(end.flow)
    if start.value < 0 or capital <= 0:
        return Fraction(1) if capital == gain == start.value == 0 else None
    return 1 + gain / capital


def check(series: Sequence[Point]) -> None:
    """Assert that points are in order of time, with the flows between them."""
    for earlier, later in pairwise(series):
        assert earlier.time_us < later.time_us, "a series goes forward in time"
        assert all(earlier.time_us <= flow.time_us <= later.time_us for flow in later.flows), (
            "a flow has its own period"
        )
