"""Uniswap V3 and its forks: each position is a token of the position manager, worth its liquidity and its fees."""

from __future__ import annotations

from adapters.evm.protocols.ticks import Growth, amounts, inside
from chainfolio.calls import Call
from chainfolio.protocols import Collection, DecodedPosition, DecoderPlan, Family, MayRefuse, ProtocolMatch, TokenAmount

POSITIONS = (
    "positions(uint256)(uint96,address,address,address,uint24,int24,int24,uint128,uint256,uint256,uint128,uint128)"
)
TICKS = "ticks(int24)(uint128,int128,uint256,uint256)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """What closing the position gives, and what it has earned and not collected.

    One that lies in a `staker` of the file is its depositor's; what that pays for it is not known, for its incentives
    are only numbered in events.
    """
    manager = match.contract
    owner, factory, stored = yield [
        MayRefuse(Call(manager, "ownerOf(uint256)(address)", (match.id,))),
        Call(manager, "factory()(address)"),
        MayRefuse(Call(manager, POSITIONS, (match.id,))),
    ]
    staker = owner if owner in match.contracts.get("staker", ()) else ""
    if staker:
        (owner,) = yield [Call(staker, "deposits(uint256)(address)", (match.id,))]
    if owner != match.account:
        return None  # burnt, or somebody else's by now
    _, _, token0, token1, fee, lower, upper, liquidity, grown0, grown1, owed0, owed1 = stored
    if not (liquidity or owed0 or owed1):
        return None
    (pool,) = yield [Call(factory, "getPool(address,address,uint24)(address)", (token0, token1, fee))]
    (price, tick), whole0, whole1, at_lower, at_upper = yield [
        Call(pool, "slot0()(uint160,int24)"),
        Call(pool, "feeGrowthGlobal0X128()(uint256)"),
        Call(pool, "feeGrowthGlobal1X128()(uint256)"),
        Call(pool, TICKS, (lower,)),
        Call(pool, TICKS, (upper,)),
    ]
    raw0, raw1 = amounts(liquidity, price, lower, upper)
    outside = [(at, Growth(*said[2:])) for at, said in ((lower, at_lower), (upper, at_upper))]
    grown = inside(tick, outside[0], outside[1], Growth(whole0, whole1)) - Growth(grown0, grown1)
    fee0, fee1 = grown.earned(liquidity)
    return DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=(TokenAmount(token0, raw0), TokenAmount(token1, raw1)),
        rewards=(TokenAmount(token0, owed0 + fee0), TokenAmount(token1, owed1 + fee1)),
        pool=pool,
        unknown=f"what {staker} pays for it" if staker else "",
    )


FAMILY = Family("uniswap_v3", rules=(Collection("position_manager"),), position=position, roles=("staker",))
