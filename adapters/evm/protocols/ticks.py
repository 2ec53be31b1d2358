"""The arithmetic of concentrated liquidity, as Uniswap V3 and V4 do it on chain: integers, rounded down, mod 2^256."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from chainfolio.tick_math import Q128, WORD, sqrt_price

Q96: Final = 1 << 96


class Growth(NamedTuple):
    """Fees per unit of liquidity since the beginning, in both tokens, times 2^128; wraps around."""

    token0: int
    token1: int

    def __sub__(self, other: Growth) -> Growth:
        return Growth((self.token0 - other.token0) % WORD, (self.token1 - other.token1) % WORD)

    def earned(self, liquidity: int) -> tuple[int, int]:
        """What so much liquidity earned while this was added."""
        return self.token0 * liquidity // Q128, self.token1 * liquidity // Q128


def amounts(liquidity: int, price: int, lower: int, upper: int) -> tuple[int, int]:
    """What taking out all liquidity between two ticks gives at a price (its square root, times 2^96)."""
    low, high = sqrt_price(lower), sqrt_price(upper)
    at = min(max(price, low), high)
    raw0 = (liquidity << 96) * (high - at) // high // at
    raw1 = liquidity * (at - low) // Q96
    return raw0, raw1


class Liquid(NamedTuple):
    """The square root of a pool's price, times 2^96, and the liquidity of one position in it."""

    root: int
    liquidity: int

    def moved(self, before: Liquid) -> Fraction:
        """By how many times the price changed since; 1 where there was, or is, none."""
        less, more = sorted((self.root, before.root))
        return Fraction(more, less) ** 2 if less else Fraction(1)

    def at(self, other: Liquid, lower: int, upper: int) -> tuple[int, int]:
        """What taking out the liquidity gives, at the other price as far as it was there then."""
        old = min(self.liquidity, other.liquidity)
        then, new = amounts(old, other.root, lower, upper), amounts(self.liquidity - old, self.root, lower, upper)
        return then[0] + new[0], then[1] + new[1]


def inside(tick: int, lower: tuple[int, Growth], upper: tuple[int, Growth], whole: Growth) -> Growth:
    """The growth between two ticks, from what is outside each of them and the whole, with the price at `tick`."""
    below = lower[1] if tick >= lower[0] else whole - lower[1]
    above = upper[1] if tick < upper[0] else whole - upper[1]
    return whole - below - above
