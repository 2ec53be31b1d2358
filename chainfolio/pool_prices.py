"""Shared rules of price sources that read pools, whichever kind of chain the pools are on."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from chainfolio import amounts
from chainfolio.errors import BadSettings

TOO_MANY_TOKENS: Final = "too many tokens at once: its pools were not looked for"


def parse_minimum(text: object, asset: str, location: str) -> Fraction:
    """Parse the amount of a trusted asset that a pool must be able to pay.

    Raise BadSettings if it is not above 0.
    """
    try:
        amount = amounts.parse(text) if isinstance(text, str) else None
    except ValueError:
        amount = None
    if amount is None or amount <= 0:
        raise BadSettings(location, f"what a pool has to have of {asset} is {text!r}", remedy='an amount: "5000"')
    return Fraction(amount)


def ratio(a: Fraction, b: Fraction) -> Fraction:
    """Return the higher of two positive numbers divided by the lower."""
    return max(a, b) / min(a, b)


def percent_apart(value: Fraction, reference: Fraction) -> str:
    """Return the difference of a number from a reference as text such as "5 %", rounded up."""
    return f"{min(abs(100 * (value - reference) / reference), Fraction(10**6)).__ceil__()} %"
