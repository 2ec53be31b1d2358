"""The money-weighted return: the internal rate of return of all payments."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Final

from chainfolio import amounts
from chainfolio.portfolio.metrics.value_series import Point, check

YEAR_US: Final = 365 * 86_400_000_000
PLACES: Final = Decimal("1e-12")
LOWEST, HIGHEST = Decimal("-0.999999999999"), Decimal(1_000_000)
STEPS: Final = 120
_CONTEXT: Final = Context(prec=60)  # a root is no decimal: this is rounded, and by itself the same everywhere


def money_weighted(series: Sequence[Point]) -> Decimal | None:
    """Return the rate over the whole series, 0.1 for ten per cent, to twelve places.

    The first value counts as paid in, the last as taken out, each flow at its own time. None if the first or the last
    value is not known, if the rate is not between LOWEST and HIGHEST, or if there may be more than one. So all payments
    in must come before all payments out, or the sign of the running sum must change once.
    """
    check(series)
    if len(series) < 2 or series[0].value is None or series[-1].value is None:
        return None
    payments = [(flow.time_us, flow.value.copy_negate()) for point in series[1:] for flow in point.flows]
    first, last = series[0], series[-1]
    payments = [(first.time_us, series[0].value.copy_negate()), *payments, (last.time_us, series[-1].value)]
    if not _has_one_root(payments):
        return None
    with localcontext(_CONTEXT):
        low, high = LOWEST, HIGHEST
        if _sum(payments, low) * _sum(payments, high) > 0:
            return None
        rising = _sum(payments, high) > 0
        for _ in range(STEPS):
            middle = (low + high) / 2
            if (_sum(payments, middle) > 0) == rising:
                high = middle
            else:
                low = middle
        return ((low + high) / 2).quantize(PLACES)


def yearly(total_return: Fraction | Decimal, series: Sequence[Point]) -> Decimal | None:
    """Return the rate per year of 365 days of a return over a series, to twelve places.

    None for a series shorter than a year, because a few days do not predict a year, and for a return below -1.
    """
    length_us = series[-1].time_us - series[0].time_us
    if length_us < YEAR_US or total_return < -1:
        return None
    with localcontext(_CONTEXT):
        ratio = Fraction(total_return)
        growth = 1 + Decimal(ratio.numerator) / Decimal(ratio.denominator)
        return (growth ** (Decimal(YEAR_US) / length_us) - 1).quantize(PLACES)


def _has_one_root(payments: Sequence[tuple[int, Decimal]]) -> bool:
    """Return True if payments have one rate for certain, by Norstrom's rule.

    Their running sum changes its sign at most once, and there are payments in and out.
    """
    running, signs = Decimal(0), list[bool]()
    for _, payment in payments:
        running = amounts.EXACT.add(running, payment)
        if running and (not signs or (running > 0) != signs[-1]):
            signs.append(running > 0)
    return len(signs) <= 2 and any(payment < 0 for _, payment in payments) and any(p > 0 for _, p in payments)


def _sum(payments: Sequence[tuple[int, Decimal]], rate: Decimal) -> Decimal:
    """Return the value of all payments at the time of the first one, at a rate over the whole time."""
    start_us, length_us = payments[0][0], payments[-1][0] - payments[0][0]
    return sum(
        (payment * (1 + rate) ** -(Decimal(time_us - start_us) / length_us) for time_us, payment in payments),
        Decimal(0),
    )
