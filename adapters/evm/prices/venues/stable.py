"""The curve of stable pools of Curve and Balancer: its invariant and its marginal price.

Balances are scaled to a common unit by `rates` (10^18 for a coin with 18 decimals and a rate of one). Numbers are exact
except the invariant, which is a whole number as on chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Final

MAX_COINS: Final = 8
WAD: Final = 10**18
MAX_STEPS: Final = 255  # of Newton's method, as in the contracts


def scale_balances(balances: Sequence[int], rates: Sequence[int]) -> list[int]:
    """Return the balances in the common unit, rounded as on chain."""
    return [balance * rate // WAD for balance, rate in zip(balances, rates, strict=True)]


def invariant(balances: Sequence[int], amp: Fraction) -> int:
    """Return the invariant D, the total of equal balances; 0 if the iteration does not converge.

    Source: the StableSwap whitepaper; `get_D` of Curve's pools.

    Args:
        balances: Balances in the common unit, all above zero.
        amp: The amplification A.
    """
    count, total = len(balances), sum(balances)
    ann, d = amp * count, total
    for _ in range(MAX_STEPS):
        d_p = d
        for balance in balances:
            d_p = d_p * d // (balance * count)
        last_d = d
        d = int((ann * total + d_p * count) * d / ((ann - 1) * d + (count + 1) * d_p))
        if abs(d - last_d) <= 1:
            return d
    return 0


def price(balances: Sequence[int], rates: Sequence[int], amp: Fraction, sold: int, bought: int) -> Fraction | None:
    """Return the marginal price without fees: raw units of `bought` per raw unit of `sold`.

    Args:
        balances: Raw balances of the coins.
        rates: Factors to the common unit.
        amp: The amplification A.
        sold: Index of the coin to be priced.
        bought: Index of the coin that it is priced in.

    Returns:
        None if a balance is zero, or if the numbers are not those of a pool.
    """
    if not (2 <= len(balances) == len(rates) <= MAX_COINS and amp > 0):
        return None
    scaled = scale_balances(balances, rates)
    d = invariant(scaled, amp) if all(scaled) else 0
    if not d:
        return None
    count = len(scaled)
    product_term = Fraction(d ** (count + 1), count**count * prod(scaled))
    ann = amp * count
    marginal = (ann + product_term / scaled[sold]) / (ann + product_term / scaled[bought])
    return marginal * Fraction(rates[sold], rates[bought])
