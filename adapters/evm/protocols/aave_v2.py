"""Aave V2 and its forks: one position a market, with all that was supplied and borrowed there at either rate."""

from __future__ import annotations

from functools import partial

from adapters.evm.positions.rules import Family
from adapters.evm.protocols import aave

RELEASE = aave.Release(
    "getLendingPool()(address)",
    "getReserveData(address)(uint256,uint128,uint128,uint128,uint128,uint128,uint40,address,address,address)",
    7,
)

FAMILY = Family(
    "aave_v2",
    rules=RELEASE.rules,
    position=partial(aave.position, release=RELEASE),
    unwrap=partial(aave.unwrap, release=RELEASE),
)
