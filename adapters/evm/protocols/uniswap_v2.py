"""Uniswap V2 and its forks: a share of a pair is its part of both reserves."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from chainfolio.adapters.evm.positions.price_guard import guard_reserves, reserves
from chainfolio.adapters.evm.positions.rules import AtEarlierBlock, DecoderPlan, Family, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call, balance_of
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import AnnotatedShare, TokenAmount, UnlistedShare

UNISWAP_FEE_PART = "1/6"


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return the tokens that burning `raw` shares pays, after the protocol's fee.

    If the block moved the pair's price, the reserves of the parent block count (`guard_reserves`). Option
    `protocol_fee` is the part of the growth that a fork's protocol takes while its fee is on, as "1/4"; "0" for forks
    without such a fee. None if the factory does not know the pair, or the pair has fewer shares: anybody can write a
    token that claims to be a pair. The pair's real balances count, because a factory with unreviewed code may confirm
    anything. In such code an UnlistedShare; an AnnotatedShare with a remark if the reserves of the parent block count.
    """
    pair, factory = match.contract, match.answer
    fee_part = Fraction(match.options.get("protocol_fee", UNISWAP_FEE_PART))
    token0, token1 = match.facts
    state = [balance_of(token0, pair), balance_of(token1, pair), Call(pair, "totalSupply()(uint256)")]
    factory_pair, (reserve0, reserve1), *results = yield [
        Call(factory, "getPair(address,address)(address)", (token0, token1)),
        Call(pair, "getReserves()(uint112,uint112)"),
        *state,
        *map(AtEarlierBlock, state),
        *([Call(factory, "feeTo()(address)"), Call(pair, "kLast()(uint256)")] if fee_part else []),
    ]
    states, fee_results = results[:6], results[6:]
    balance0, balance1, supply = states[:3]
    if factory_pair != pair or raw > supply:
        return None
    amounts, remark = (yield from guard_reserves(state, reserves, states)) or ((balance0, balance1), "")
    fee_to, k_last = fee_results or (ZERO_ADDRESS, 0)
    if fee_to != ZERO_ADDRESS:
        supply += protocol_fee(fee_part, supply, reserve0, reserve1, k_last)
    parts = TokenAmount(token0, raw * amounts[0] // supply), TokenAmount(token1, raw * amounts[1] // supply)
    share = UnlistedShare(parts) if match.is_fork else parts
    return AnnotatedShare(share, remark) if remark else share


def protocol_fee(fee_part: Fraction, supply: int, reserve0: int, reserve1: int, k_last: int) -> int:
    """Return the shares that the pair mints for the protocol before it pays anybody: a part of its growth.

    Source: `_mintFee` of `UniswapV2Pair`, for which `fee_part` is 1/6. `k_last` is the product of the reserves after
    the last change of liquidity, 0 if the fee was off.
    """
    root, root_last = isqrt(reserve0 * reserve1), isqrt(k_last)
    if not root > root_last > 0:
        return 0
    protocol_weight, holder_weight = fee_part.numerator, fee_part.denominator - fee_part.numerator
    return supply * (root - root_last) * protocol_weight // (root * holder_weight + root_last * protocol_weight)


FAMILY = Family(
    "uniswap_v2",
    rules=(Token(role="factory", question="factory()(address)", facts=("token0()(address)", "token1()(address)")),),
    unwrap=unwrap,
    position_type="LIQUIDITYPOOL",
    options=("protocol_fee",),
)
