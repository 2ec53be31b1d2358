"""Pools of Velodrome V2, Aerodrome and their forks: shares, their fees, and gauges."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.price_guard import Reserves, guard_reserves, reserves
from chainfolio.adapters.evm.positions.rules import AtEarlierBlock, DecoderPlan, Family, MayRefuse, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call, balance_of
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import AnnotatedShare, DecodedPosition, TokenAmount, UnlistedShare

INDEX_SCALE = 10**18  # indexes are fees per share
# The first release of Solidly, from which many forks are, has another name for it.
RESERVES = "getReserves()(uint256,uint256)"
IS_POOL, IS_PAIR = "isPool(address)(bool)", "isPair(address)(bool)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode a pool: shares in the wallet with their fees, and shares in the pool's gauge.

    None if the factory does not know the pool. A staked share earns the gauge's reward and no fees. The fees include
    those that the pool counts only at the account's next transaction with it; those of unreviewed code are left out.
    """
    pool, account = match.contract, match.account
    is_pool, is_pair, shares, token0, token1, *counters = yield [
        MayRefuse(Call(match.answer, IS_POOL, (pool,))),
        MayRefuse(Call(match.answer, IS_PAIR, (pool,))),
        balance_of(pool, account),
        Call(pool, "token0()(address)"),
        Call(pool, "token1()(address)"),
        *(
            read
            for side in "01"
            for read in (
                MayRefuse(Call(pool, f"claimable{side}(address)(uint256)", (account,))),
                MayRefuse(Call(pool, f"index{side}()(uint256)")),
                MayRefuse(Call(pool, f"supplyIndex{side}(address)(uint256)", (account,))),
            )
        ),
        *(Call(voter, "gauges(address)(address)", (pool,)) for voter in match.contracts.get("voter", ())),
    ]
    counters, gauges = counters[:6], [gauge for gauge in counters[6:] if gauge != ZERO_ADDRESS]
    if not (is_pool or is_pair):
        return None
    is_known = None not in counters
    fees = [
        TokenAmount(token, claimable + shares * (index - counted) // INDEX_SCALE)
        for token, (claimable, index, counted) in zip((token0, token1), (counters[:3], counters[3:]), strict=True)
        if is_known
    ]
    in_wallet = DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=(TokenAmount(pool, shares),),
        rewards=() if match.is_fork else tuple(fees),  # unreviewed code may claim any fees
        pool=pool,
        replaces=(pool,),
        is_unlisted=match.is_fork,
        unknown="" if is_known or not shares else "its fees",
    )
    results = yield [
        MayRefuse(read)
        for gauge in gauges
        for read in (
            balance_of(gauge, account),
            Call(gauge, "earned(address)(uint256)", (account,)),
            Call(gauge, "rewardToken()(address)"),
        )
    ]
    staked = [_gauge_position(pool, gauge, *results[3 * i : 3 * i + 3]) for i, gauge in enumerate(gauges)]
    return [in_wallet, *staked]


def _gauge_position(pool: str, gauge: str, raw: int | None, earned: int | None, token: str | None) -> DecodedPosition:
    """Return the shares of a pool in its gauge, and their rewards.

    If the gauge refuses one of the reads (None), the position names its content as `unknown`.
    """
    return DecodedPosition(
        "FARMING",
        supplied=(TokenAmount(pool, raw or 0),),
        rewards=() if earned is None or token is None else (TokenAmount(token, earned),),
        pool=gauge,
        unknown="what it has in the pool's gauge" if None in (raw, earned, token) else "",
    )


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return the tokens that burning `raw` shares pays; fees lie outside of the pool.

    If the block moved the pool's price, the reserves of the parent block count (`guard_reserves`): an AnnotatedShare.
    In unreviewed code the tokens in the pool count: an UnlistedShare. None if the factory does not know the pool, or
    the pool has fewer shares.
    """
    pool, (token0, token1) = match.contract, match.facts
    supply_read = Call(pool, "totalSupply()(uint256)")
    # Unreviewed code may claim any reserves: the tokens that lie in the pool count.
    state = [balance_of(token0, pool), balance_of(token1, pool)] if match.is_fork else [Call(pool, RESERVES)]
    state.append(supply_read)
    is_pool, is_pair, *values = yield [
        MayRefuse(Call(match.answer, IS_POOL, (pool,))),
        MayRefuse(Call(match.answer, IS_PAIR, (pool,))),
        *state,
        *map(AtEarlierBlock, state),
    ]
    now, supply = values[: len(state) - 1], values[len(state) - 1]
    reserve0, reserve1 = now if match.is_fork else now[0]
    if not (is_pool or is_pair) or not supply or raw > supply:
        return None
    parse = reserves if match.is_fork else _reserves
    amounts, remark = (yield from guard_reserves(state, parse, values)) or ((reserve0, reserve1), "")
    parts = TokenAmount(token0, raw * amounts[0] // supply), TokenAmount(token1, raw * amounts[1] // supply)
    share = UnlistedShare(parts) if match.is_fork else parts
    return AnnotatedShare(share, remark) if remark else share


def _reserves(amounts: tuple[int, int], supply: int) -> Reserves | None:
    """Return the state of a pool; None if it is empty."""
    return reserves(*amounts, supply)


FAMILY = Family(
    "solidly",
    rules=(Token("factory", "factory()(address)", facts=("token0()(address)", "token1()(address)")),),
    position=position,
    unwrap=unwrap,
    roles=("voter",),
)
