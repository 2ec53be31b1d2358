"""Pendle's markets: a share is its part of the market's standardized yield and principal."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call, balance_of
from chainfolio.protocols import DecodedPosition, TokenAmount

VALID = "isValidMarket(address)(bool)"
# The first fields of the struct: principal and standardized yield in the market, and the number of shares.
STATE = "readState(address)(int256,int256,int256)"
TOKENS = "readTokens()(address,address,address)"


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return the tokens that burning `raw` shares pays now; None if the factory does not know the market."""
    market = match.contract
    is_valid, (total_principal, total_yield, supply), (yield_token, principal, _) = yield [
        Call(match.answer, VALID, (market,)),
        Call(market, STATE, (match.account,)),
        Call(market, TOKENS),
    ]
    if not is_valid:
        return None
    shares = max(supply, 1)
    return (
        TokenAmount(yield_token, raw * total_yield // shares),
        TokenAmount(principal, raw * total_principal // shares),
    )


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the account's shares and the rewards that claiming would pay now.

    None if the factory does not know the market; rewards are unknown if the market refuses to simulate a claim.
    """
    market, account = match.contract, match.account
    (balance,) = yield [balance_of(market, account)]
    parts = yield from unwrap(match, balance)
    if parts is None:
        return None
    tokens, raws = yield [
        Call(market, "getRewardTokens()(address[])"),
        MayRefuse(Call(market, "redeemRewards(address)(uint256[])", (account,), alone=True)),
    ]
    return DecodedPosition(
        "LIQUIDITYPOOL",
        parts,
        rewards=() if raws is None else tuple(TokenAmount(*reward) for reward in zip(tokens, raws, strict=True)),
        pool=market,
        replaces=(market,),
        unknown="its rewards" if raws is None else "",
    )


FAMILY = Family(
    "pendle_market",
    rules=(Token(role="market_factory", question="factory()(address)"),),
    position=position,
    unwrap=unwrap,
)
