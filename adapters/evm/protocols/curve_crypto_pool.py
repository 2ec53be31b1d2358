"""Curve's pools of two and three volatile coins, of the factories Twocrypto NG and Tricrypto NG."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.price_guard import guard_reserves, reserves
from chainfolio.adapters.evm.positions.rules import AtEarlierBlock, DecoderPlan, Family, MayRefuse, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import AnnotatedShare, TokenAmount, UnlistedShare


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return the coins that `remove_liquidity` pays for `raw` shares, at guarded balances.

    None if the factory of the file does not know the pool, or `raw` is zero or more than the supply. In unreviewed code
    an UnlistedShare; an AnnotatedShare with a remark if the balances of the parent block count.
    """
    pool, factory = match.contract, match.answer
    three, two = yield [MayRefuse(Call(factory, f"get_coins(address)(address[{count}])", (pool,))) for count in (3, 2)]
    coins = three or two
    if not coins or ZERO_ADDRESS in coins:
        return None
    state = [
        *(Call(pool, "balances(uint256)(uint256)", (index,)) for index in range(len(coins))),
        Call(pool, "totalSupply()(uint256)"),
    ]
    values = yield [*state, *map(AtEarlierBlock, state)]
    *balances, supply = values[: len(state)]
    if not 0 < raw <= supply:
        return None
    counted, remark = (yield from guard_reserves(state, reserves, values)) or (balances, "")
    parts = tuple(TokenAmount(coin, raw * balance // supply) for coin, balance in zip(coins, counted, strict=True))
    share = UnlistedShare(parts) if match.is_fork else parts
    return AnnotatedShare(share, remark) if remark else share


FAMILY = Family(
    "curve_crypto_pool",
    rules=(Token("crypto_factory", "factory()(address)"),),
    unwrap=unwrap,
    position_type="LIQUIDITYPOOL",
    is_proven=False,
)
