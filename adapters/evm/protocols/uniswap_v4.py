"""Uniswap V4: each position is a token of the position manager; its pool is a number in a contract of all pools."""

from __future__ import annotations

from sha3 import keccak_256

from adapters.evm.positions.rules import Before, Collection, DecoderPlan, Family, MayRefuse, ProtocolMatch
from adapters.evm.positions.settled import settled
from adapters.evm.protocols.ticks import Growth, Liquid
from adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount

PoolKey = tuple[str, str, int, int, str]
# Both tokens (zero: native coins), fee, tick spacing, hook; and the ticks, packed.
INFO = "getPoolAndPositionInfo(uint256)((address,address,uint24,int24,address),uint256)"
GROWN = "getPositionInfo(bytes32,address,int24,int24,bytes32)(uint128,uint256,uint256)"
# A hook whose address ends in this bit may keep, or add to, what is taken out.
TAKES_PART = 1


def position(match: ProtocolMatch) -> DecoderPlan:
    """What closing the position gives, and the fees it earned since it was last changed: those are all there are."""
    manager = match.contract
    owner, told = yield [
        MayRefuse(Call(manager, "ownerOf(uint256)(address)", (match.id,))),
        MayRefuse(Call(manager, INFO, (match.id,))),
    ]
    if owner != match.account:
        return None  # burnt, or somebody else's by now
    key, packed = told
    token0, token1, _, _, hook = key
    pool, lower, upper = pool_id(key), _tick(packed >> 8), _tick(packed >> 32)
    (view,) = match.contracts["state_view"]
    own = (pool, manager, lower, upper, match.id.to_bytes(32, "big"))
    state = [Call(view, "getSlot0(bytes32)(uint160,int24)", (pool,)), Call(view, GROWN, own)]
    slot0, in_pool, now, *begun = yield [
        *state,
        Call(view, "getFeeGrowthInside(bytes32,int24,int24)(uint256,uint256)", (pool, lower, upper)),
        *map(Before, state),
    ]
    liquidity, *before = in_pool
    if not liquidity:
        return None
    liquid = Liquid(slot0[0], liquidity)
    counted, remark = yield from settled(state, _liquid, liquid, begun)
    takes, is_listed = bool(int(hook, 16) & TAKES_PART), hook in match.contracts.get("hook", ())
    raw0, raw1 = liquid.at(counted, lower, upper)
    fee0, fee1 = (Growth(*now) - Growth(*before)).earned(liquidity)
    return DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=(TokenAmount(token0, raw0), TokenAmount(token1, raw1)),
        rewards=(TokenAmount(token0, fee0), TokenAmount(token1, fee1)),
        pool=match.contracts["pool_manager"][0],
        unknown=f"what the hook {hook} takes or gives when liquidity is taken out" if takes and is_listed else "",
        unverified=f"its hook {hook} may keep all that is taken out, and no file names it"
        if takes and not is_listed
        else "",
        remark=remark,
    )


def _liquid(slot0: tuple[int, int], in_pool: tuple[int, int, int]) -> Liquid | None:
    return Liquid(slot0[0], in_pool[0]) if slot0[0] and in_pool[0] else None


def pool_id(key: PoolKey) -> bytes:
    """The number of a pool: the hash of what makes it what it is."""
    token0, token1, fee, spacing, hook = key
    words = (int(token0, 16), int(token1, 16), fee, spacing, int(hook, 16))
    number: bytes = keccak_256(b"".join(word.to_bytes(32, "big") for word in words)).digest()
    return number


def _tick(packed: int) -> int:
    """The signed number of 24 bits at the end of a word."""
    return (packed + (1 << 23)) % (1 << 24) - (1 << 23)


FAMILY = Family(
    "uniswap_v4",
    rules=(Collection("position_manager"),),
    position=position,
    roles=("state_view", "pool_manager", "hook"),
)
