"""Numbers in answers: decimals as text, rounded once, and one constant for unknown values."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Final

from chainfolio import amounts

UNKNOWN: Final = "N/A"


def rounded(exact: Fraction, decimal_places: int) -> Decimal:
    """Return an exact rational rounded once to `decimal_places`, half to even."""
    return amounts.EXACT.scaleb(Decimal(round(exact * 10**decimal_places)), -decimal_places)
