"""Pools of Algebra (QuickSwap V3, Camelot V3, THENA): those of Uniswap V3, one for a pair; no average is read."""

from __future__ import annotations

from typing import Final

from pricing.venues.section import Facts
from pricing.venues.uniswap_v3 import UniswapV3

POOL_BY_PAIR: Final = "poolByPair(address,address)(address)"
STATE: Final = "globalState()(uint160,int24)"


def of(facts: Facts) -> UniswapV3:
    """From the venue's section."""
    return UniswapV3(facts.name, facts.address("factory"), (("", ()),), 0, POOL_BY_PAIR, STATE)
