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
    points, rest = list[Point](), sorted(flows)
    place = 0
    for moment in sorted(values):
        first = place
        while place < len(rest) and rest[place].time_us < moment:
            place += 1
        points.append(Point(moment, values[moment], tuple(rest[first:place])))
    return points


def growth(before: Point, after: Point) -> Fraction | None:
    """What one unit of money became between two points, by the modified Dietz method: the gain divided by the capital,
    in which a flow counts for the part of the time that it was there. So what was paid in earns only from then on, and
    is no gain itself. None where a value is not known, or where there is a gain and no capital."""
    if before.value is None or after.value is None:
        return None
    capital, length = Fraction(before.value), after.time_us - before.time_us
    for flow in after.flows:
        capital += Fraction(flow.value) * Fraction(after.time_us - flow.time_us, length)
    gain = Fraction(after.value) - Fraction(before.value) - Fraction(after.flow)
    if before.value < 0 or capital <= 0:
        return Fraction(1) if capital == gain == before.value == 0 else None
    return 1 + gain / capital


def check(series: Sequence[Point]) -> None:
    """Every metric wants its points in the order of time, with the flows between them."""
    for one, other in pairwise(series):
        assert one.time_us < other.time_us, "a series goes forward in time"
        assert all(one.time_us <= flow.time_us <= other.time_us for flow in other.flows), "a flow has its own period"
