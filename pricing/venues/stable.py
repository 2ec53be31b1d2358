"""The curve of stable pools, Curve's and Balancer's: its invariant, and the price at which a pool trades the next unit.

Balances are scaled to a common unit by `rates` (of 10^18 for a coin of 18 decimals that is worth one). All is exact but
the invariant, which is a whole number as it is on chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Final

MAX_COINS: Final = 8
WAD: Final = 10**18
STEPS: Final = 255


def scaled(balances: Sequence[int], rates: Sequence[int]) -> list[int]:
    """The balances in the common unit, rounded as on chain."""
    return [balance * rate // WAD for balance, rate in zip(balances, rates, strict=True)]


def invariant(held: Sequence[int], amp: Fraction) -> int:
    """How much all coins would be if they were balanced; 0 where the steps come to nothing."""
    count, total = len(held), sum(held)
    steep, at = amp * count, total
    for _ in range(STEPS):
        part = at
        for each in held:
            part = part * at // (each * count)
        last = at
        at = int((steep * total + part * count) * at / ((steep - 1) * at + (count + 1) * part))
        if abs(at - last) <= 1:
            return at
    return 0


def price(balances: Sequence[int], rates: Sequence[int], amp: Fraction, sold: int, bought: int) -> Fraction | None:
    """How many raw units of the coin `bought` the next one of the coin `sold` brings, without fees; None of a pool
    that is empty, or is none."""
    if not (2 <= len(balances) == len(rates) <= MAX_COINS and amp > 0):
        return None
    held = scaled(balances, rates)
    whole = invariant(held, amp) if all(held) else 0
    if not whole:
        return None
    count = len(held)
    bend = Fraction(whole ** (count + 1), count**count * prod(held))
    steep = amp * count
    return (steep + bend / held[sold]) / (steep + bend / held[bought]) * Fraction(rates[sold], rates[bought])
