"""Arithmetic of concentrated liquidity on Solana, exact to the raw unit.

Square roots of prices are times 2^64, growths are modulo 2^128. The factors are 1.0001^(2^n / 2), or one over that,
times 2^96 or 2^64: the constants of Orca's program are exactly these. Raydium's constants are listed.
"""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal
from functools import cache
from typing import Final

Q64: Final = 1 << 64
WORD: Final = 1 << 128
MAX_TICK: Final = 443_636
BITS: Final = MAX_TICK.bit_length()
_EXACT: Final = Context(prec=120)


@cache
def factors(unit: int, *, up: bool) -> tuple[int, ...]:
    """Return the factor of each bit of a tick times `unit`, rounded down; one over the factor unless `up`."""
    root = _EXACT.sqrt(Decimal("1.0001"))
    scaled = []
    for bit in range(BITS):
        factor = _EXACT.power(root, 2**bit) if up else _EXACT.divide(Decimal(1), _EXACT.power(root, 2**bit))
        scaled.append(int(_EXACT.multiply(factor, Decimal(unit)).to_integral_value(ROUND_FLOOR)))
    return tuple(scaled)


def orca_root(tick: int) -> int:
    """Return the square root of the price at a tick, as Orca's Whirlpools compute it."""
    assert abs(tick) <= MAX_TICK, f"there is no tick {tick}"
    if tick >= 0:
        return _product(tick, factors(1 << 96, up=True), 96) >> 32
    return _product(-tick, factors(Q64, up=False), 64)


RAYDIUM_FACTORS: Final = (  # per bit of a tick, from the program: they are not rounded consistently
    0xFFFCB933BD6FB800,
    0xFFF97272373D4000,
    0xFFF2E50F5F657000,
    0xFFE5CACA7E10F000,
    0xFFCB9843D60F7000,
    0xFF973B41FA98E800,
    0xFF2EA16466C9B000,
    0xFE5DEE046A9A3800,
    0xFCBE86C7900BB000,
    0xF987A7253AC65800,
    0xF3392B0822BB6000,
    0xE7159475A2CAF000,
    0xD097F3BDFD2F2000,
    0xA9F746462D9F8000,
    0x70D869A156F31C00,
    0x31BE135F97ED3200,
    0x9AA508B5B85A500,
    0x5D6AF8DEDC582C,
    0x2216E584F5FA,
)


def raydium_root(tick: int) -> int:
    """Return the square root of the price at a tick, as Raydium's concentrated liquidity computes it."""
    assert abs(tick) <= MAX_TICK, f"there is no tick {tick}"
    ratio = _product(abs(tick), RAYDIUM_FACTORS, 64)
    return (WORD - 1) // ratio if tick > 0 else ratio


def _product(tick: int, bit_factors: tuple[int, ...], shift: int) -> int:
    """Return the product of the factors of a tick's bits, with `shift` fractional bits, rounded down."""
    ratio = 1 << shift
    for bit, factor in enumerate(bit_factors):
        if tick >> bit & 1:
            ratio = ratio * factor >> shift
    return ratio


def amounts(liquidity: int, sqrt_price: int, lower: int, upper: int) -> tuple[int, int]:
    """Return the amounts of tokens a and b that withdrawing all liquidity pays, rounded down.

    Args:
        liquidity: The liquidity of the position.
        sqrt_price: Of the pool, times 2^64.
        lower: Square root of the price at the lower tick, times 2^64.
        upper: The same at the upper tick.
    """
    clamped = min(max(sqrt_price, lower), upper)
    return (liquidity * (upper - clamped) << 64) // (upper * clamped), liquidity * (clamped - lower) >> 64


def growth_inside(pool_tick: int, lower: tuple[int, bool, int], upper: tuple[int, bool, int], total: int) -> int:
    """Return the growth per unit of liquidity between two ticks, modulo 2^128.

    Args:
        pool_tick: The current tick of the pool.
        lower: The lower tick: its index, True if it is initialized, and the growth outside.
        upper: The upper tick, in the same form.
        total: The growth of the whole pool.
    """
    tick, is_initialized, outside = lower
    below = total if not is_initialized else total - outside if pool_tick < tick else outside
    tick, is_initialized, outside = upper
    above = 0 if not is_initialized else outside if pool_tick < tick else total - outside
    return (total - below - above) % WORD


def collectable(owed_raw: int, growth: int, liquidity: int) -> int:
    """Return the raw units that a position can collect.

    As the program computes it, new fees that do not fit into 64 bits count as 0.

    Args:
        owed_raw: Counted when the position last changed.
        growth: Growth inside the range since then.
        liquidity: The liquidity of the position.
    """
    new_fees = (growth % WORD) * liquidity >> 64
    return (owed_raw + (new_fees if new_fees < Q64 else 0)) % Q64
