"""Bars (xSUSHI, xJOE): shares of a contract that holds one token and pays each share its part."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call, balance_of
from chainfolio.protocols import TokenAmount, TypedCalls


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return what `leave` pays for `raw` shares: their part of all tokens in the bar, gifts included.

    Option `token` is the call that returns the token. None if there are fewer shares than `raw`.
    """
    bar = match.contract
    token, supply = yield [Call(bar, match.options["token"]), Call(bar, "totalSupply()(uint256)")]
    (balance,) = yield [balance_of(token, bar)]
    return (TokenAmount(token, raw * balance // supply),) if 0 < raw <= supply else None


FAMILY = Family(
    "token_bar",
    rules=(Token("bar"),),
    unwrap=unwrap,
    position_type="STAKED",
    options=("token",),
    calls=(TypedCalls("STAKE", "loss", ("enter",)), TypedCalls("UNSTAKE", "gain", ("leave",))),
)
