"""Exact 256-bit amounts. *raw* is the chain's integer; an *amount* is raw scaled by decimals.

No floats are used. In tables a raw is exactly 32 big-endian bytes, so that it sorts; the raw is authoritative. In
answers an amount is a decimal string in plain notation without trailing zeros.
"""

from __future__ import annotations

from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow, localcontext
from typing import Final

MAX_RAW: Final = 2**256 - 1
MAX_DEC38: Final = 10**38 - 1
MAX_DECIMALS: Final = 255
ZERO: Final = Decimal(0)

# 78 digits of raw times up to 78 digits of price, plus head-room: an operation that would round raises instead.
EXACT: Final = Context(prec=1000, Emax=10_000, Emin=-10_000, traps=[Inexact, InvalidOperation, Overflow])


def raw_from_bytes(data: bytes) -> int:
    """Return the raw in exactly 32 big-endian bytes; another length fails an assertion."""
    assert len(data) == 32, f"a raw has 32 bytes, not {len(data)}"
    return int.from_bytes(data, "big")


def amount(raw: int, decimals: int) -> Decimal:
    """Return `raw` scaled by `decimals`, exactly: 1_500_000 at 6 is 1.5."""
    assert 0 <= decimals <= MAX_DECIMALS, f"not a token's decimals: {decimals}"
    return EXACT.scaleb(Decimal(raw), -decimals)


def value_of(amount: Decimal, price: Decimal) -> Decimal:
    """Return amount times price, exactly; a product that would need rounding raises decimal.Inexact."""
    return EXACT.multiply(amount, price)


def total(values: list[Decimal]) -> Decimal:
    """Return the exact sum; 0 for an empty list."""
    with localcontext(EXACT):
        return sum(values, ZERO)


def text(value: Decimal) -> str:
    """Return a decimal in plain notation: never scientific, no trailing zeros, no minus zero."""
    if value == 0:
        return "0"
    digits = f"{value:f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def parse(digits: str, *, max_digits: int = 120) -> Decimal:
    """Return the decimal in a text: digits, maybe a point between digits, maybe a minus before them.

    Raises:
        ValueError: The text has another form (an exponent, spaces, `+`), or more than `max_digits` characters.
    """
    body = digits.removeprefix("-")
    integer, _, fraction = body.partition(".")
    if not (integer.isascii() and integer.isdigit()) or len(body) > max_digits:
        raise ValueError(f"not a plain decimal number: {digits[:40]!r}")
    if "." in body and not (fraction.isascii() and fraction.isdigit()):
        raise ValueError(f"not a plain decimal number: {digits[:40]!r}")
    return Decimal(digits)
