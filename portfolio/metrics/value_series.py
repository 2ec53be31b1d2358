"""The value of a portfolio over time, with what its owner paid in and took out between two points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from chainfolio import amounts


class Flow(NamedTuple):
    """What came from outside at a moment (negative: what was taken out), valued at that moment."""

    time_us: int
    value: Decimal


class Point(NamedTuple):
    """The value at a moment, None where nobody knows it. `flows` came since the point before it, in the order of time;
    the value contains them."""

    time_us: int
    value: Decimal | None
    flows: tuple[Flow, ...] = ()

    @property
    def flow(self) -> Decimal:
        """The sum of the flows."""
        return amounts.total([flow.value for flow in self.flows])


def value_series(values: Mapping[int, Decimal | None], flows: Iterable[Flow] = ()) -> list[Point]:
    """Values by moment (microseconds) as a series by time. A flow belongs to the first value after it (one at the
    moment of a value comes after that), one after the last value to none. A value that is not known stays a gap:
    nothing is carried forward."""
    points, sorted_flows = list[Point](), sorted(flows)
    end = 0
    for time_us in sorted(values):
        start = end
        while end < len(sorted_flows) and sorted_flows[end].time_us < time_us:
            end += 1
        points.append(Point(time_us, values[time_us], tuple(sorted_flows[start:end])))
    return points


def growth(start: Point, end: Point) -> Fraction | None:
    """What one unit of money became between two points, by the modified Dietz method: the gain divided by the capital,
    in which a flow counts for the part of the time that it was there. So what was paid in earns only from then on, and
    is no gain itself. None where a value is not known, or where there is a gain and no capital."""
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
    """Every metric wants its points in the order of time, with the flows between them."""
    for earlier, later in pairwise(series):
        assert earlier.time_us < later.time_us, "a series goes forward in time"
        assert all(earlier.time_us <= flow.time_us <= later.time_us for flow in later.flows), (
            "a flow has its own period"
        )
