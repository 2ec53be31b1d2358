"""Pendle's markets: a share is its part of the standardized yield and of the principal in one."""

from __future__ import annotations

from adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, Token
from adapters.evm.reads import Call, balance_of
from chainfolio.protocols import DecodedPosition, TokenAmount

VALID = "isValidMarket(address)(bool)"
# What of principal and of standardized yield is in it, and how many shares there are; the rest is not needed.
STATE = "readState(address)(int256,int256,int256)"
TOKENS = "readTokens()(address,address,address)"


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """What burning so many shares pays now; None where the factory does not know the market."""
    market = match.contract
    valid, (principal, shares, supply), (share, token, _) = yield [
        Call(match.answer, VALID, (market,)),
        Call(market, STATE, (match.account,)),
        Call(market, TOKENS),
    ]
    if not valid:
        return None
    whole = max(supply, 1)
    return (TokenAmount(share, raw * shares // whole), TokenAmount(token, raw * principal // whole))


def position(match: ProtocolMatch) -> DecoderPlan:
    """What the account's shares pay, and what it has earned with them, as claiming would pay it now."""
    market, account = match.contract, match.account
    (held,) = yield [balance_of(market, account)]
    parts = yield from unwrap(match, held)
    if parts is None:
        return None
    tokens, earned = yield [
        Call(market, "getRewardTokens()(address[])"),
        MayRefuse(Call(market, "redeemRewards(address)(uint256[])", (account,), alone=True)),
    ]
    rewards = (
        () if earned is None else tuple(TokenAmount(token, raw) for token, raw in zip(tokens, earned, strict=True))
    )
    unknown = "its rewards" if earned is None else ""
    return DecodedPosition("LIQUIDITYPOOL", parts, rewards=rewards, pool=market, replaces=(market,), unknown=unknown)


FAMILY = Family(
    "pendle_market",
    rules=(Token(role="market_factory", question="factory()(address)"),),
    position=position,
    unwrap=unwrap,
)
