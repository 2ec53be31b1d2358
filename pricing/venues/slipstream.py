"""Concentrated pools of Velodrome and Aerodrome: those of Uniswap V3, told apart by tick spacings in place of fees."""

from __future__ import annotations

from typing import Final

from pricing.venues.section import Facts
from pricing.venues.uniswap_v3 import UniswapV3

GET_POOL: Final = "getPool(address,address,int24)(address)"


def of(facts: Facts) -> UniswapV3:
    """From the venue's section."""
    tiers = tuple((f"spacing {each}", (each,)) for each in facts.numbers("spacings", 32_767))
    return UniswapV3(facts.name, facts.address("factory"), tiers, facts.number("mean_s", 600), GET_POOL)
