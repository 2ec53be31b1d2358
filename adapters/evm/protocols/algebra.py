"""Algebra 1.0 and 1.9 (QuickSwap V3, Camelot V3): NFTs with concentrated liquidity, one pool a pair."""

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
    ReadError,
)
from chainfolio.adapters.evm.protocols.ticks import LiquidityState
from chainfolio.adapters.evm.protocols.uniswap_v3 import (
    FACTORY,
    TICKS,
    ClaimReads,
    PoolReads,
    PositionRecord,
    PositionState,
    uncollected_fees,
    verified_positions,
)
from chainfolio.adapters.evm.reads import OWNER, AbiValue, Call, balance_of
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.plans import all_of
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls
from chainfolio.tick_math import MAX_TICK

POSITIONS = "positions(uint256)(uint88,address,address,address,int24,int24,uint128,uint256,uint256,uint128,uint128)"
STATE = "globalState()(uint160,int24)"
# The pool's own record of a position: release 1.0 has a time in second place.
STORED = "positions(bytes32)(uint256,uint256,uint256,uint256,uint256)"
STORED_1_0 = "positions(bytes32)(uint256,uint32,uint256,uint256,uint256,uint256)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode position NFTs: the amounts that closing them pays, and uncollected fees.

    NFTs of a manager that no file names count only as far as their pools keep the liquidity for this manager, as in
    Uniswap V3. Every manager has to name a factory of the file. What a farm pays for an NFT is unknown. Empty NFTs, and
    those of other owners, are left out.
    """
    manager, numbers = match.contract, match.ids or (match.id,)
    factory, *results = yield [
        Call(manager, FACTORY),
        *(MayRefuse(Call(manager, call, (number,))) for number in numbers for call in (OWNER, POSITIONS)),
    ]
    if factory not in match.contracts.get("factory", ()):
        return []
    claims: dict[int, PositionRecord] = {}
    for number, owner, words in zip(numbers, results[::2], results[1::2], strict=True):
        if words and owner == match.account:
            record = _record(words)
            if not record.is_empty and -MAX_TICK <= record.tick_lower < record.tick_upper <= MAX_TICK:
                claims[number] = record
    farms = [MayRefuse(Call(manager, "tokenFarmedIn(uint256)(address)", (number,))) for number in claims]
    pools = yield [
        *(Call(factory, "poolByPair(address,address)(address)", claim.tokens) for claim in claims.values()),
        *farms,
    ]
    if match.ids:
        plans = {
            str(number): _claim(claim, number, pool, manager)
            for (number, claim), pool in zip(claims.items(), pools, strict=False)
        }
        claim_reads = yield from all_of(plans)
        return verified_positions(list(claim_reads.values()), manager)
    for (number, record), pool, farm in zip(claims.items(), pools, pools[len(claims) :], strict=False):
        _, _, current, guarded, remark, inside, _ = yield from _claim(record, number, pool, manager, is_listed=True)
        raws = record.amounts(current.liquidity, guarded.liquidity)
        return DecodedPosition(
            "LIQUIDITYPOOL",
            supplied=tuple(map(TokenAmount, record.tokens, raws)),
            rewards=tuple(map(TokenAmount, record.tokens, uncollected_fees(record, inside))),
            pool=pool,
            unknown="what the farm pays for it" if farm not in (None, ZERO_ADDRESS) else "",
            remark=remark,
        )
    return []


def _claim(record: PositionRecord, number: int, pool: str, manager: str, is_listed: bool = False) -> DecoderPlan:
    """Read the pool of a position and return `ClaimReads`.

    What the pool keeps for the manager is not read if the manager is listed.

    Raises:
        ReadError: The pool is of a later release (Integral), whose ticks have other words.
    """
    key = (pool_key(record, manager),)
    stored_reads = [] if is_listed else [MayRefuse(Call(pool, STORED_1_0, key)), MayRefuse(Call(pool, STORED, key))]
    balances = [] if is_listed else [balance_of(token, pool) for token in record.tokens]
    state = [Call(pool, STATE), Call(manager, POSITIONS, (number,)), *balances]
    operator, *results = yield [
        MayRefuse(Call(pool, "dataStorageOperator()(address)")),
        Call(pool, STATE),
        Call(pool, "totalFeeGrowth0Token()(uint256)"),
        Call(pool, "totalFeeGrowth1Token()(uint256)"),
        Call(pool, TICKS, (record.tick_lower,)),
        Call(pool, TICKS, (record.tick_upper,)),
        *map(AtEarlierBlock, state),
        *stored_reads,
        *map(MayRefuse, balances),
    ]
    if operator is None:
        raise ReadError(f"the pool {pool} is of a release of Algebra that this decoder does not read")
    reads, parent, checks = PoolReads.of(results[:5]), results[5 : 5 + len(state)], results[5 + len(state) :]
    older, newer = checks[:2] if checks else (None, None)
    stored = (older[0], *older[2:]) if older else newer or (0, 0, 0, 0, 0)
    pool_balances = tuple(balance or 0 for balance in checks[2:])
    current = guarded = PositionState(LiquidityState(reads.slot0.sqrt_price_x96, record.liquidity), pool_balances)
    remark = ""
    if record.liquidity:
        guarded, remark = yield from guard_price(state, _state, current, parent)
    return ClaimReads(record, pool, current, guarded, remark, reads.fee_growth_inside(record), stored)


def pool_key(record: PositionRecord, manager: str) -> bytes:
    """Return the key under which a pool stores all positions of a manager between two ticks."""
    ticks = b"".join(tick.to_bytes(3, "big", signed=True) for tick in (record.tick_lower, record.tick_upper))
    return (bytes.fromhex(manager[2:]) + ticks).rjust(32, b"\0")


def _record(words: Sequence[AbiValue]) -> PositionRecord:
    """Return the words of a position as those of Uniswap V3, which have a fee in fifth place."""
    return PositionRecord._make([*words[:4], 0, *words[4:]])


def _state(state: tuple[int, int], words: tuple[AbiValue, ...], *balances: int) -> PositionState | None:
    """Return the state of a pool and a position; None if the position did not exist yet."""
    return PositionState.of(state, tuple(_record(words)), *balances)


FAMILY = Family(
    "algebra",
    rules=(Collection("position_manager"), Collection("factory", question=FACTORY)),
    position=position,
    calls=(
        TypedCalls("ADDLIQUIDITY", "collectible minted", ("mint", "multicall")),
        TypedCalls("ADDLIQUIDITY", "loss", ("increaseLiquidity",)),
        TypedCalls("REMOVELIQUIDITY", "gain", ("collect",)),
    ),
)
