"""The arithmetic of concentrated liquidity on Solana, to the unit: roots of prices times 2^64, growths modulo 2^128.

The factors are 1.0001^(2^n / 2), or one over that, times 2^96 or 2^64: the constants of Orca's program are these.
Raydium's are written down.
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
    """The factor of each bit of a tick, times `unit`, rounded down."""
    root = _EXACT.sqrt(Decimal("1.0001"))
    found = []
    for bit in range(BITS):
        factor = _EXACT.power(root, 2**bit) if up else _EXACT.divide(Decimal(1), _EXACT.power(root, 2**bit))
        found.append(int(_EXACT.multiply(factor, Decimal(unit)).to_integral_value(ROUND_FLOOR)))
    return tuple(found)


def orca_root(tick: int) -> int:
    """The square root of the price at a tick, as Whirlpools have it."""
    assert abs(tick) <= MAX_TICK, f"there is no tick {tick}"
    if tick >= 0:
        return _product(tick, factors(1 << 96, up=True), 96) >> 32
    return _product(-tick, factors(Q64, up=False), 64)


RAYDIUM_FACTORS: Final = (  # of each bit of a tick, as the program has them: not rounded in any one way
    0xFFFCB933BD6FB800, 0xFFF97272373D4000, 0xFFF2E50F5F657000, 0xFFE5CACA7E10F000, 0xFFCB9843D60F7000,
    0xFF973B41FA98E800, 0xFF2EA16466C9B000, 0xFE5DEE046A9A3800, 0xFCBE86C7900BB000, 0xF987A7253AC65800,
    0xF3392B0822BB6000, 0xE7159475A2CAF000, 0xD097F3BDFD2F2000, 0xA9F746462D9F8000, 0x70D869A156F31C00,
    0x31BE135F97ED3200, 0x9AA508B5B85A500, 0x5D6AF8DEDC582C, 0x2216E584F5FA,
)  # fmt: skip


def raydium_root(tick: int) -> int:
    """The square root of the price at a tick, as Raydium's concentrated liquidity has it."""
    assert abs(tick) <= MAX_TICK, f"there is no tick {tick}"
    ratio = _product(abs(tick), RAYDIUM_FACTORS, 64)
    return (WORD - 1) // ratio if tick > 0 else ratio


def _product(steps: int, several: tuple[int, ...], shift: int) -> int:
    ratio = 1 << shift
    for bit, factor in enumerate(several):
        if steps >> bit & 1:
            ratio = ratio * factor >> shift
    return ratio


def amounts(liquidity: int, root: int, low: int, high: int) -> tuple[int, int]:
    """What taking out all liquidity between two roots of prices gives at a third one, rounded down."""
    at = min(max(root, low), high)
    return (liquidity * (high - at) << 64) // (high * at), liquidity * (at - low) >> 64


def inside(tick: int, lower: tuple[int, int, int], upper: tuple[int, int, int], whole: int) -> int:
    """What one unit of liquidity between two ticks has earned since the beginning, times 2^64 and modulo 2^128.

    A tick is its index, whether it is in use, and what was earned beyond it, as the pool keeps it."""
    at, used, beyond = lower
    below = whole if not used else whole - beyond if tick < at else beyond
    at, used, beyond = upper
    above = 0 if not used else beyond if tick < at else whole - beyond
    return (whole - below - above) % WORD


def earned(owed: int, grown: int, liquidity: int) -> int:
    """What a position can collect: what is owed, and what it earned while this was added. What does not fit its field
    is nothing, as the program has it."""
    fresh = (grown % WORD) * liquidity >> 64
    return (owed + (fresh if fresh < Q64 else 0)) % Q64
