"""Slipstream, the concentrated liquidity of Aerodrome and Velodrome, staked in gauges or not."""

from __future__ import annotations

from collections.abc import Sequence

from chainfolio.adapters.evm.positions.price_guard import guard_price
from chainfolio.adapters.evm.positions.rules import (
    AtEarlierBlock,
    Collection,
    DecoderPlan,
    Family,
    MayRefuse,
    ProtocolMatch,
)
from chainfolio.adapters.evm.protocols.ticks import LiquidityState
from chainfolio.adapters.evm.protocols.uniswap_v3 import (
    FACTORY,
    POSITIONS,
    SLOT0,
    PoolReads,
    PositionRecord,
    PositionState,
    uncollected_fees,
)
from chainfolio.adapters.evm.reads import OWNER, AbiValue, Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

# The third word, which Uniswap V3 does not have, is the staked liquidity.
TICKS = "ticks(int24)(uint128,int128,int128,uint256,uint256)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode one position NFT: the amounts that closing it pays, and its fees or its gauge's reward.

    A staked position earns the reward, and its fees go to voters. The record has the pool's tick spacing where Uniswap
    V3 has the fee. None if neither the account owns the NFT nor the gauge of its pool keeps it for the account, or if
    the position is empty.
    """
    manager, account = match.contract, match.account
    owner, factory, result = yield [
        MayRefuse(Call(manager, OWNER, (match.id,))),
        Call(manager, FACTORY),
        MayRefuse(Call(manager, POSITIONS, (match.id,))),
    ]
    if result is None or PositionRecord(*result).is_empty:
        return None
    record = PositionRecord(*result)
    spacing = record.fee_pips
    (pool,) = yield [Call(factory, "getPool(address,address,int24)(address)", (*record.tokens, spacing))]
    rewards: tuple[TokenAmount, ...] = ()
    if owner != account:
        (gauge,) = yield [Call(pool, "gauge()(address)")]
        if gauge != owner:
            return None  # transferred
        is_staked, token, earned = yield [
            Call(gauge, "stakedContains(address,uint256)(bool)", (account, match.id)),
            Call(gauge, "rewardToken()(address)"),
            MayRefuse(Call(gauge, "earned(address,uint256)(uint256)", (account, match.id))),
        ]
        if not is_staked:
            return None
        rewards = () if earned is None else (TokenAmount(token, earned),)
    state = [Call(pool, SLOT0), Call(manager, POSITIONS, (match.id,))]
    results = yield [*_pool_reads(record, pool), *map(AtEarlierBlock, state)]
    reads = _pool_state(results[:5])
    current = guarded = PositionState(LiquidityState(reads.slot0.sqrt_price_x96, record.liquidity))
    remark = ""
    if record.liquidity:
        guarded, remark = yield from guard_price(state, PositionState.of, current, results[5:])
    raws = record.amounts(current.liquidity, guarded.liquidity)
    fees = uncollected_fees(record, reads.fee_growth_inside(record))
    return DecodedPosition(
        "LIQUIDITYPOOL" if owner == account else "FARMING",
        supplied=tuple(map(TokenAmount, record.tokens, raws)),
        rewards=tuple(map(TokenAmount, record.tokens, fees)) if owner == account else rewards,
        pool=pool,
        unknown="" if owner == account or rewards else "what the gauge pays for it",
        remark=remark,
    )


def _pool_reads(record: PositionRecord, pool: str) -> list[Call]:
    """Return the calls whose results make `PoolReads`."""
    return [
        Call(pool, SLOT0),
        Call(pool, "feeGrowthGlobal0X128()(uint256)"),
        Call(pool, "feeGrowthGlobal1X128()(uint256)"),
        Call(pool, TICKS, (record.tick_lower,)),
        Call(pool, TICKS, (record.tick_upper,)),
    ]


def _pool_state(results: Sequence[AbiValue]) -> PoolReads:
    """Return the results of `_pool_reads` as those of Uniswap V3: ticks without the staked liquidity."""
    lower, upper = ((*tick[:2], *tick[3:]) for tick in results[3:])
    return PoolReads.of([*results[:3], lower, upper])


FAMILY = Family(
    "slipstream",
    rules=(Collection("position_manager"),),
    position=position,
    # Its events are those of Uniswap V3, whose family reads the changes of positions: declared twice they count twice.
    calls=(TypedCalls("ADDLIQUIDITY", "collectible minted", ("mint", "multicall")),),
)
