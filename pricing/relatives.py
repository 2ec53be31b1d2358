"""Compute USD prices from relative prices: the exact sum over the parts, rounded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Final

from chainfolio.assets import Asset
from chainfolio.contracts import Price
from chainfolio.price_sources import RelativePrice

MAX_STEPS: Final = 4  # from an asset to a price that depends on no other
MAX_MARKETS: Final = 2  # of these steps: a pool whose quote asset is priced by another pool, and no further
MAX_PARTS: Final = 64
MAX_DETAIL: Final = 500  # characters
ROUNDED: Final = Context(prec=36, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class PricePath:
    """Distance of a price from those that depend on no other: the steps, and how many of them are markets."""

    steps: int = 0
    markets: int = 0


DIRECT: Final = PricePath()


def extend_path(relative: RelativePrice, part_paths: Sequence[PricePath]) -> PricePath:
    """Return the path of a relative price, one step longer than the longest path of its parts."""
    markets = max((path.markets for path in part_paths), default=0) + (relative.depth is not None)
    return PricePath(max((path.steps for path in part_paths), default=0) + 1, markets)


def path_fault(path: PricePath) -> str:
    """Return the reason why a path is too long; empty if it is not."""
    if path.markets > MAX_MARKETS:
        return f"it rests on more than {MAX_MARKETS} markets, one upon the other"
    return f"it rests on more than {MAX_STEPS} assets, one upon the other" if path.steps > MAX_STEPS else ""


def relative_fault(relative: RelativePrice) -> str:
    """Return the reason why the parts or the depth of a relative price are unusable.

    Empty if they are usable.
    """
    if not 0 < len(relative.parts) <= MAX_PARTS:
        return f"the price has {len(relative.parts)} parts, not 1 to {MAX_PARTS}"
    amounts = [amount for _, amount in relative.parts] + ([relative.depth[1]] if relative.depth else [])
    for amount in amounts:
        if not isinstance(amount, Fraction):
            return f"an amount of the price is a {type(amount).__name__}, not a Fraction"
    if any(amount < 0 for amount in amounts):
        return "an amount of the price is negative"
    return "" if any(amount for _, amount in relative.parts) else "all parts of the price are zero"


def to_usd(relative: RelativePrice, prices: Mapping[Asset, Price]) -> Price:
    """Return the price in USD, with the oldest time and the lowest confidence of its parts.

    Its depth is that of the thinnest market on the path; None if there is no market.

    Args:
        relative: The price in other assets.
        prices: Prices in USD, at least of all `relative.dependencies`.
    """
    parts = [prices[part] for part, _ in relative.parts]
    usd = rounded(sum((amount * Fraction(prices[part].usd) for part, amount in relative.parts), Fraction(0)))
    depths = [part.depth_usd for part in parts if part.depth_usd is not None]
    if relative.depth is not None:
        asset, amount = relative.depth
        depths.append(rounded(amount * Fraction(usd if asset == relative.asset else prices[asset].usd)))
    calls = {call.read: call for call in (*relative.calls, *(call for part in parts for call in part.calls))}
    return Price(
        relative.asset,
        usd,
        relative.source,
        min(relative.time_us, *(part.time_us for part in parts)),
        min(relative.confidence, *(part.confidence for part in parts)),
        _detail(relative, parts),
        tuple(calls.values()),
        min(depths, default=None),
    )


def rounded(value: Fraction) -> Decimal:
    """Round a fraction to 36 significant digits, half to even."""
    return ROUNDED.divide(Decimal(value.numerator), Decimal(value.denominator))


def _detail(relative: RelativePrice, parts: Sequence[Price]) -> str:
    """Describe the path: the price's detail, then each part with its source and detail."""
    path = " + ".join(" ".join(filter(None, (f"{part.asset} → {part.source}", part.detail))) for part in parts)
    detail = f"{relative.detail} → {path}" if relative.detail else path
    return detail if len(detail) <= MAX_DETAIL else f"{detail[: MAX_DETAIL - 1]}…"
