"""Uniswap V2 and its forks: a share of a pair is its part of both reserves."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from adapters.evm.positions.rules import Before, DecoderPlan, Family, ProtocolMatch, Token
from adapters.evm.positions.settled import fair, reserves
from adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import Remarked, TokenAmount, Unlisted

UNISWAP_S = "1/6"
BALANCE_OF = "balanceOf(address)(uint256)"


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """What burning so many shares gives: the part of what the pair holds, once the protocol has taken its fee; of what
    it held as the block began, where the block moved its price (`settled`).

    Option `protocol_fee` is the part of the growth that a fork's protocol takes where its fee is on, as "1/4"; "0" for
    forks that know no such fee. None where the factory does not know the pair, or the pair knows of fewer shares:
    anybody can write a token that claims to be one. A factory whose code nobody read may confirm anything: what is
    there counts only for who came by the shares in an act of its own.
    """
    pair, factory = match.contract, match.answer
    part = Fraction(match.options.get("protocol_fee", UNISWAP_S))
    token0, token1 = match.facts
    state = [Call(token0, BALANCE_OF, (pair,)), Call(token1, BALANCE_OF, (pair,)), Call(pair, "totalSupply()(uint256)")]
    genuine, traded, *told = yield [
        Call(factory, "getPair(address,address)(address)", (token0, token1)),
        Call(pair, "getReserves()(uint112,uint112)"),
        *state,
        *map(Before, state),
        *([Call(factory, "feeTo()(address)"), Call(pair, "kLast()(uint256)")] if part else []),
    ]
    said, on = told[:6], told[6:]
    held0, held1, supply = said[:3]
    if genuine != pair or raw > supply:
        return None
    held, remark = (yield from fair(state, reserves, said)) or ((held0, held1), "")
    fee_to, k_last = on or (ZERO_ADDRESS, 0)
    if fee_to != ZERO_ADDRESS:
        supply += protocol_fee(part, supply, traded[0], traded[1], k_last)
    parts = TokenAmount(token0, raw * held[0] // supply), TokenAmount(token1, raw * held[1] // supply)
    given = Unlisted(parts) if match.is_fork else parts
    return Remarked(given, remark) if remark else given


def protocol_fee(part: Fraction, supply: int, reserve0: int, reserve1: int, k_last: int) -> int:
    """The shares that the pair gives to the protocol before it pays anybody out: a part of what it grew by."""
    root, root_last = isqrt(reserve0 * reserve1), isqrt(k_last)
    if not root > root_last > 0:
        return 0
    ours, theirs = part.numerator, part.denominator - part.numerator
    return supply * (root - root_last) * ours // (root * theirs + root_last * ours)


FAMILY = Family(
    "uniswap_v2",
    rules=(Token(role="factory", question="factory()(address)", facts=("token0()(address)", "token1()(address)")),),
    unwrap=unwrap,
    position_type="LIQUIDITYPOOL",
    options=("protocol_fee",),
)
