"""Uniswap V4: NFTs of a position manager; pools are numbers in one contract."""

from __future__ import annotations

from collections.abc import Sequence

from sha3 import keccak_256

from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.positions.price_guard import guard_price
from chainfolio.adapters.evm.positions.rules import (
    AtEarlierBlock,
    Collection,
    DecoderPlan,
    Family,
    MayRefuse,
    ProtocolMatch,
)
from chainfolio.adapters.evm.protocols.ticks import FeeGrowth, LiquidityState
from chainfolio.adapters.evm.reads import OWNER, Call
from chainfolio.position_changes import EventLog, PositionChange
from chainfolio.protocols import DecodedPosition, TokenAmount

PoolKey = tuple[str, str, int, int, str]  # token0, token1 (zero address: native coin), fee, tick spacing, hook
POOL_AND_POSITION = "getPoolAndPositionInfo(uint256)((address,address,uint24,int24,address),uint256)"
POSITION = "getPositionInfo(bytes32,address,int24,int24,bytes32)(uint128,uint256,uint256)"
# A hook whose address ends in this bit may take from, or add to, what removing liquidity pays
# (`AFTER_REMOVE_LIQUIDITY_RETURNS_DELTA_FLAG` of v4-core).
CHANGES_PAYOUT = 1


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode one position NFT: the amounts that closing it would pay, and the fees since its last change.

    Fees are paid out at every change, so there are no others. None if the account does not own the NFT, or if it is
    empty.
    """
    manager = match.contract
    owner, info = yield [
        MayRefuse(Call(manager, OWNER, (match.id,))),
        MayRefuse(Call(manager, POOL_AND_POSITION, (match.id,))),
    ]
    if owner != match.account:
        return None  # burnt or transferred
    key, packed = info
    token0, token1, _, _, hook = key
    pool, lower, upper = pool_id(key), _tick(packed >> 8), _tick(packed >> 32)
    (view,) = match.contracts["state_view"]
    position_key = (pool, manager, lower, upper, match.id.to_bytes(32, "big"))
    state = [Call(view, "getSlot0(bytes32)(uint160,int24)", (pool,)), Call(view, POSITION, position_key)]
    slot0, (liquidity, *position_growth), growth_inside, *parent_results = yield [
        *state,
        Call(view, "getFeeGrowthInside(bytes32,int24,int24)(uint256,uint256)", (pool, lower, upper)),
        *map(AtEarlierBlock, state),
    ]
    if not liquidity:
        return None
    current = LiquidityState(slot0[0], liquidity)
    guarded, remark = yield from guard_price(state, _liquidity_state, current, parent_results)
    raw0, raw1 = current.amounts_at(guarded, lower, upper)
    fee0, fee1 = (FeeGrowth(*growth_inside) - FeeGrowth(*position_growth)).fees(liquidity)
    unknown = unverified = ""
    if int(hook, 16) & CHANGES_PAYOUT:
        if hook in match.contracts.get("hook", ()):
            unknown = f"what the hook {hook} takes or gives when liquidity is taken out"
        else:
            unverified = f"its hook {hook} may keep all that is taken out, and no file names it"
    return DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=(TokenAmount(token0, raw0), TokenAmount(token1, raw1)),
        rewards=(TokenAmount(token0, fee0), TokenAmount(token1, fee1)),
        pool=match.contracts["pool_manager"][0],
        unknown=unknown,
        unverified=unverified,
        remark=remark,
    )


def _liquidity_state(slot0: tuple[int, int], info: tuple[int, int, int]) -> LiquidityState | None:
    """Return the state of a position from the results of calls; None if it did not exist yet."""
    return LiquidityState(slot0[0], info[0]) if slot0[0] and info[0] else None


def pool_id(key: PoolKey) -> bytes:
    """Return the id of a pool: the hash of its key."""
    token0, token1, fee, spacing, hook = key
    fields = (int(token0, 16), int(token1, 16), fee, spacing, int(hook, 16))
    digest: bytes = keccak_256(b"".join(field.to_bytes(32, "big") for field in fields)).digest()
    return digest


def _tick(packed: int) -> int:
    """Return the signed integer in the lowest 24 bits."""
    return (packed + (1 << 23)) % (1 << 24) - (1 << 23)


MODIFIED = parse_event("ModifyLiquidity(bytes32 indexed,address indexed,int24,int24,int256,bytes32)").topic


def changes(logs: Sequence[EventLog]) -> list[PositionChange]:
    """Return the changes of positions that the logs of one transaction show, grouped by position.

    The pool manager logs the caller and its salt: the position manager's is the number of the position. The event has
    no amounts, and every change pays all fees.

    Raises:
        ValueError: Two contracts logged changes of one position: one of them is forged.
    """
    changes_by_position = dict[tuple[str, int], list[PositionChange]]()
    for log in logs:
        if log.topics[:1] != (MODIFIED,) or len(log.topics) != 3 or len(log.data) != 128:
            continue
        manager, number = "0x" + log.topics[2][-40:], int.from_bytes(log.data[96:], "big")
        units = int.from_bytes(log.data[64:96], "big", signed=True)
        change = PositionChange(manager, number, units, ("", ""), (0, 0), log.contract, has_amounts=False)
        changes_by_position.setdefault((manager, number), []).append(change)
    for (manager, number), each in changes_by_position.items():
        if len({change.pool for change in each}) > 1:
            raise ValueError(f"several contracts logged changes of {number} of {manager}")
    return [change for each in changes_by_position.values() for change in each]


FAMILY = Family(
    "uniswap_v4",
    rules=(Collection("position_manager"),),
    position=position,
    roles=("state_view", "pool_manager", "hook"),
    changes=changes,
)
