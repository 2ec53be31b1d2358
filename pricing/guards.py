"""Reject prices that are malformed, stale or out of range.

Each function returns the reason for a rejection as users read it, or an empty string if there is none. A rejected
price leaves its holding unpriced and visible, because a missing price is better than a wrong one.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.price_sources import MAX_USD, MIN_USD, RelativePrice

MAX_DIGITS: Final = 120  # limit of exact arithmetic
MAX_DEPTH: Final = Decimal(10**24)  # USD: more than any market has


def type_fault(price: Price | RelativePrice, source: str) -> str:
    """Return why a price has a field of a wrong type or names another source; empty if it does not."""
    fields: list[tuple[str, object, type]] = [
        ("time_us", price.time_us, int),
        ("confidence", price.confidence, Decimal),
    ]
    if isinstance(price, Price):
        fields.insert(0, ("usd", price.usd, Decimal))
    for name, value, kind in fields:
        if not isinstance(value, kind):
            return f"the price's {name} is a {type(value).__name__}, not {'an' if kind is int else 'a'} {kind.__name__}"
    if isinstance(price, Price) and not isinstance(price.depth_usd, Decimal | None):
        return f"the price's depth_usd is a {type(price.depth_usd).__name__}, not a Decimal"
    return "" if price.source == source else f"the price names another source: {price.source!s:.100}"


def price_fault(price: Price, block: Block) -> str:
    """Return why a price cannot be used at a block, whichever source it is from; empty if it can."""
    if not price.usd.is_finite() or price.usd <= 0:
        return f"the price is not above zero: {price.usd}"
    if not MIN_USD <= price.usd <= MAX_USD:
        return f"the price is out of all proportion: {price.usd:.3E} USD"
    if len(price.usd.as_tuple().digits) > MAX_DIGITS:
        return f"the price has more than {MAX_DIGITS} digits"
    return _depth_fault(price.depth_usd) or observation_fault(price, block)


def _depth_fault(depth_usd: Decimal | None) -> str:
    """Return why a market depth is no sum in range; empty if it is one, or None."""
    if depth_usd is None:
        return ""
    if not depth_usd.is_finite() or depth_usd < 0:
        return f"what its market could pay is no sum: {depth_usd}"
    if depth_usd and not MIN_USD <= depth_usd <= MAX_DEPTH:
        return f"what its market could pay is out of all proportion: {depth_usd:.3E} USD"
    is_long = len(depth_usd.as_tuple().digits) > MAX_DIGITS
    return f"what its market could pay has more than {MAX_DIGITS} digits" if is_long else ""


def observation_fault(price: Price | RelativePrice, block: Block) -> str:
    """Return why a price's time or confidence is out of range at a block; empty if both are fine."""
    if price.time_us > block.time_us:
        return "the price is dated after the block"
    if not (price.confidence.is_finite() and 0 <= price.confidence <= 1):
        return f"the price's confidence is not between 0 and 1: {price.confidence}"
    return ""
