"""The arithmetic of concentrated liquidity, with the rounding of Uniswap V3 and V4 on chain.

Source: Uniswap V3 whitepaper, sections 6.2 to 6.4; `SqrtPriceMath` and `Tick` of v3-core.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from chainfolio.tick_math import Q128, WORD, sqrt_price

Q96: Final = 1 << 96


class FeeGrowth(NamedTuple):
    """Fees per unit of liquidity since the pool's creation, times 2^128; wraps around at 2^256."""

    token0: int
    token1: int

    def __sub__(self, earlier: FeeGrowth) -> FeeGrowth:
        return FeeGrowth((self.token0 - earlier.token0) % WORD, (self.token1 - earlier.token1) % WORD)

    def fees(self, liquidity: int) -> tuple[int, int]:
        """Return the fees of both tokens that `liquidity` earned during this growth, in raw units."""
        return self.token0 * liquidity // Q128, self.token1 * liquidity // Q128


def amounts(liquidity: int, sqrt_price_x96: int, tick_lower: int, tick_upper: int) -> tuple[int, int]:
    """Return the raw amounts of both tokens that removing liquidity between two ticks pays at a price."""
    low, high = sqrt_price(tick_lower), sqrt_price(tick_upper)
    price = min(max(sqrt_price_x96, low), high)
    raw0 = (liquidity << 96) * (high - price) // high // price
    raw1 = liquidity * (price - low) // Q96
    return raw0, raw1


class LiquidityState(NamedTuple):
    """The price of a pool, as square root of token1 per token0 times 2^96, and a position's liquidity."""

    sqrt_price_x96: int
    liquidity: int

    def price_ratio(self, earlier: LiquidityState) -> Fraction:
        """Return the higher of both prices divided by the lower; 1 if one of them is missing."""
        low, high = sorted((self.sqrt_price_x96, earlier.sqrt_price_x96))
        return Fraction(high, low) ** 2 if low else Fraction(1)

    def amounts_at(self, earlier: LiquidityState, tick_lower: int, tick_upper: int) -> tuple[int, int]:
        """Return the raw amounts that removing the liquidity pays at an earlier price.

        Liquidity that was added since then counts at the current price.
        """
        old = min(self.liquidity, earlier.liquidity)
        old0, old1 = amounts(old, earlier.sqrt_price_x96, tick_lower, tick_upper)
        new0, new1 = amounts(self.liquidity - old, self.sqrt_price_x96, tick_lower, tick_upper)
        return old0 + new0, old1 + new1


def fee_growth_inside(
    tick: int, lower: tuple[int, FeeGrowth], upper: tuple[int, FeeGrowth], total: FeeGrowth
) -> FeeGrowth:
    """Return the fee growth between two ticks.

    Args:
        tick: The pool's current tick.
        lower: The lower tick, and the fee growth outside of it.
        upper: The upper tick, and the fee growth outside of it.
        total: The fee growth of the whole pool.
    """
    below = lower[1] if tick >= lower[0] else total - lower[1]
    above = upper[1] if tick < upper[0] else total - upper[1]
    return total - below - above
