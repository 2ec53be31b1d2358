"""Pools of Algebra (QuickSwap V3, Camelot V3, THENA): like Uniswap V3 with one pool per pair.

No average is read.
"""

from __future__ import annotations

from typing import Final

from chainfolio.adapters.evm.prices.section import VenueSection
from chainfolio.adapters.evm.prices.venues.uniswap_v3 import UniswapV3

POOL_BY_PAIR: Final = "poolByPair(address,address)(address)"
STATE: Final = "globalState()(uint160,int24)"


def build(section: VenueSection) -> UniswapV3:
    """Build the venue from its section."""
    return UniswapV3(section.name, section.address("factory"), (("", ()),), 0, POOL_BY_PAIR, STATE)
