"""Concentrated pools of Velodrome and Aerodrome: like Uniswap V3, with tick spacings instead of fees."""

from __future__ import annotations

from typing import Final

from chainfolio.adapters.evm.prices.section import VenueSection
from chainfolio.adapters.evm.prices.venues.uniswap_v3 import UniswapV3

GET_POOL: Final = "getPool(address,address,int24)(address)"


def build(section: VenueSection) -> UniswapV3:
    """Build the venue from its section."""
    tiers = tuple((f"spacing {spacing}", (spacing,)) for spacing in section.numbers("spacings", 32_767))
    return UniswapV3(section.name, section.address("factory"), tiers, section.number("mean_s", 600), GET_POOL)
