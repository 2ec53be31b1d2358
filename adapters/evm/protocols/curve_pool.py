"""Curve's StableSwap NG: a pool is its own share, which stands for its part of all coins of the pool."""

from __future__ import annotations

from collections.abc import Sequence

from chainfolio.adapters.evm.positions.price_guard import Reserves, guard_reserves, reserves
from chainfolio.adapters.evm.positions.rules import AtEarlierBlock, DecoderPlan, Family, MayRefuse, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import AnnotatedShare, TokenAmount, TypedCalls, UnlistedShare

COUNT = "get_n_coins(address)(uint256)"
BALANCES, SUPPLY = "get_balances()(uint256[])", "totalSupply()(uint256)"


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return the coins that `remove_liquidity` pays for `raw` shares, at guarded balances.

    One coin of a metapool is a share of another pool. If the block moved the pool's price too far, the balances before
    it count, with a remark (`guard_reserves`). A pool that lacks one of its coins is not checked for that.

    Returns:
        The amounts by coin: UnlistedShare if the contracts were not reviewed (`is_fork`), AnnotatedShare with a remark.
        None if no factory lists the pool, or `raw` is zero or more than the supply.
    """
    pool, factories = match.contract, match.contracts.get("pool_factory", ())
    counts = yield [MayRefuse(Call(factory, COUNT, (pool,))) for factory in factories]
    listing_factories = [factory for factory, count in zip(factories, counts, strict=True) if count]
    if not listing_factories:
        return None
    state = [Call(pool, BALANCES), Call(pool, SUPPLY)]
    coins, *values = yield [
        Call(listing_factories[0], "get_coins(address)(address[])", (pool,)),
        *state,
        *map(AtEarlierBlock, state),
    ]
    balances, supply = values[:2]
    if not 0 < raw <= supply or len(coins) != len(balances):
        return None
    # A pool without one of its coins cannot be compared with the block before.
    counted, remark = (yield from guard_reserves(state, _reserves, values)) or (balances, "")
    parts = tuple(TokenAmount(coin, raw * balance // supply) for coin, balance in zip(coins, counted, strict=True))
    share = UnlistedShare(parts) if match.is_fork else parts
    return AnnotatedShare(share, remark) if remark else share


def _reserves(balances: Sequence[int], supply: int) -> Reserves | None:
    """Return the state of a pool; None if one of its coins is missing."""
    return reserves(*balances, supply)


FAMILY = Family(
    "curve_pool",
    # Pools have no function that returns an address and is theirs alone. The number of their coins, read as an
    # address, tells them from other tokens; a factory of the file then says which pools are its own.
    rules=(Token(question="N_COINS()(address)"),),
    unwrap=unwrap,
    position_type="LIQUIDITYPOOL",
    roles=("pool_factory",),
    calls=(
        TypedCalls("ADDLIQUIDITY", "loss", ("add_liquidity",)),
        TypedCalls(
            "REMOVELIQUIDITY", "loss", ("remove_liquidity", "remove_liquidity_one_coin", "remove_liquidity_imbalance")
        ),
    ),
)
