"""Prices at ticks of pools with concentrated liquidity, in the integers of TickMath on chain."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

Q128: Final = 1 << 128
Q192: Final = 1 << 192
WORD: Final = 1 << 256
MAX_TICK: Final = 887_272
# 2^128 / sqrt(1.0001)^(2^n): the factor of each bit of a tick.
FACTORS: Final = (
    0xFFFCB933BD6FAD37AA2D162D1A594001,
    0xFFF97272373D413259A46990580E213A,
    0xFFF2E50F5F656932EF12357CF3C7FDCC,
    0xFFE5CACA7E10E4E61C3624EAA0941CD0,
    0xFFCB9843D60F6159C9DB58835C926644,
    0xFF973B41FA98C081472E6896DFB254C0,
    0xFF2EA16466C96A3843EC78B326B52861,
    0xFE5DEE046A99A2A811C461F1969C3053,
    0xFCBE86C7900A88AEDCFFC83B479AA3A4,
    0xF987A7253AC413176F2B074CF7815E54,
    0xF3392B0822B70005940C7A398E4B70F3,
    0xE7159475A2C29B7443B29C7FA6E889D9,
    0xD097F3BDFD2022B8845AD8F792AA5825,
    0xA9F746462D870FDF8A65DC1F90E061E5,
    0x70D869A156D2A1B890BB3DF62BAF32F7,
    0x31BE135F97D08FD981231505542FCFA6,
    0x9AA508B5B7A84E1C677DE54F3E99BC9,
    0x5D6AF8DEDB81196699C329225EE604,
    0x2216E584F5FA1EA926041BEDFE98,
    0x48A170391F7DC42444E8FA2,
)


def sqrt_price(tick: int) -> int:
    """Return the square root of the price at a tick, times 2^96, rounded up as TickMath does.

    Ticks beyond MAX_TICK fail an assertion.
    """
    assert abs(tick) <= MAX_TICK, f"there is no tick {tick}"
    ratio = Q128
    for bit, factor in enumerate(FACTORS):
        if abs(tick) >> bit & 1:
            ratio = ratio * factor >> 128
    if tick > 0:
        ratio = (WORD - 1) // ratio
    return -(-ratio >> 32)


def price(root: int) -> Fraction:
    """Return the price of one raw unit of the first token in the second, from its square root times 2^96."""
    return Fraction(root * root, Q192)
