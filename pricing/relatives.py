"""Prices of what is worth other assets: the exact sum over its parts, rounded once, with the way to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Final

from chainfolio.assets import Asset
from chainfolio.contracts import Price
from pricing.quotes import Relative

MAX_STEPS: Final = 4  # from an asset to a price that rests on no other
MAX_MARKETS: Final = 2  # of these steps: a pool whose quote asset is priced by a pool, not further
MAX_PARTS: Final = 64
MAX_DETAIL: Final = 500  # characters
ROUNDED: Final = Context(prec=36, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class Way:
    """How far a price is from those that rest on no other: the steps, and how many of them are markets."""

    steps: int = 0
    markets: int = 0


DIRECT: Final = Way()


def way_of(relative: Relative, parts: Sequence[Way]) -> Way:
    """The way of a relative price, given those of its parts: the longest counts."""
    markets = max((part.markets for part in parts), default=0) + (relative.depth is not None)
    return Way(max((part.steps for part in parts), default=0) + 1, markets)


def way_fault(way: Way) -> str:
    """Why a price is too far from those that rest on no other; empty where it is not."""
    if way.markets > MAX_MARKETS:
        return f"it rests on more than {MAX_MARKETS} markets, one upon the other"
    return f"it rests on more than {MAX_STEPS} assets, one upon the other" if way.steps > MAX_STEPS else ""


def relative_fault(relative: Relative) -> str:
    """Why what a source said is no relative price; empty where it is one."""
    if not 0 < len(relative.parts) <= MAX_PARTS:
        return f"the price has {len(relative.parts)} parts, not 1 to {MAX_PARTS}"
    amounts = [amount for _, amount in relative.parts] + ([relative.depth[1]] if relative.depth else [])
    for amount in amounts:
        if not isinstance(amount, Fraction):
            return f"an amount of the price is a {type(amount).__name__}, not a Fraction"
    if any(amount < 0 for amount in amounts):
        return "an amount of the price is negative"
    return "" if any(amount for _, amount in relative.parts) else "all parts of the price are zero"


def absolute(relative: Relative, prices: Mapping[Asset, Price]) -> Price:
    """The price in USD that follows from those of its parts: as old as the oldest of them, as sure as the least sure.

    What it could be sold for is bounded by each market on the way.
    """
    parts = [prices[part] for part, _ in relative.parts]
    usd = rounded(sum((amount * Fraction(prices[part].usd) for part, amount in relative.parts), Fraction(0)))
    depths = [part.depth_usd for part in parts if part.depth_usd is not None]
    if relative.depth is not None:
        of, amount = relative.depth
        depths.append(rounded(amount * Fraction(usd if of == relative.asset else prices[of].usd)))
    calls = {call.read: call for call in (*relative.calls, *(call for part in parts for call in part.calls))}
    return Price(
        relative.asset, usd, relative.source,
        min(relative.time_us, *(part.time_us for part in parts)),
        min(relative.confidence, *(part.confidence for part in parts)),
        _detail(relative, parts), tuple(calls.values()), min(depths, default=None),
    )  # fmt: skip


def rounded(value: Fraction) -> Decimal:
    """A fraction to 36 significant digits, half to even."""
    return ROUNDED.divide(Decimal(value.numerator), Decimal(value.denominator))


def _detail(relative: Relative, parts: Sequence[Price]) -> str:
    """The way in words: what the source said, then each part with its source and what that one said."""
    tails = [" ".join(filter(None, (f"{part.asset} → {part.source}", part.detail))) for part in parts]
    way = " + ".join(tails)
    said = f"{relative.detail} → {way}" if relative.detail else way
    return said if len(said) <= MAX_DETAIL else f"{said[: MAX_DETAIL - 1]}…"
