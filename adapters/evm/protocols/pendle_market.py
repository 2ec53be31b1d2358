"""Pendle's markets: a share is its part of the standardized yield and of the principal in one."""

from __future__ import annotations

from chainfolio.calls import Call, balance_of
from chainfolio.protocols import Decoding, Family, Found, Maybe, Met, Part, Token

VALID = "isValidMarket(address)(bool)"
# What of principal and of standardized yield is in it, and how many shares there are; the rest is not needed.
STATE = "readState(address)(int256,int256,int256)"
TOKENS = "readTokens()(address,address,address)"


def unwrap(met: Met, raw: int) -> Decoding:
    """What burning so many shares pays now; None where the factory does not know the market."""
    market = met.contract
    valid, (principal, shares, supply), (share, token, _) = yield [
        Call(met.answer, VALID, (market,)),
        Call(market, STATE, (met.account,)),
        Call(market, TOKENS),
    ]
    if not valid:
        return None
    whole = max(supply, 1)
    return (Part(share, raw * shares // whole), Part(token, raw * principal // whole))


def position(met: Met) -> Decoding:
    """What the account's shares pay, and what it has earned with them, as claiming would pay it now."""
    market, account = met.contract, met.account
    (held,) = yield [balance_of(market, account)]
    parts = yield from unwrap(met, held)
    if parts is None:
        return None
    tokens, earned = yield [
        Call(market, "getRewardTokens()(address[])"),
        Maybe(Call(market, "redeemRewards(address)(uint256[])", (account,), alone=True)),
    ]
    rewards = () if earned is None else tuple(Part(token, raw) for token, raw in zip(tokens, earned, strict=True))
    unknown = "its rewards" if earned is None else ""
    return Found("LIQUIDITYPOOL", parts, rewards=rewards, pool=market, instead=(market,), unknown=unknown)


FAMILY = Family(
    "pendle_market",
    rules=(Token(role="market_factory", question="factory()(address)"),),
    position=position,
    unwrap=unwrap,
)
