"""Stargate V2: pool shares in a wallet. Each stands for one unit of the pool's token."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import TokenAmount, TypedCalls


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return the pool's token (the zero address: native coin); None if the share is not the pool's own.

    A pool pays shares 1:1. What its local credit could pay at once is no measure of what is owned.
    """
    share, token = yield [Call(match.answer, "lpToken()(address)"), Call(match.answer, "token()(address)")]
    return (TokenAmount(token, raw),) if share == match.contract else None


FAMILY = Family(
    "stargate",
    rules=(Token("pool", "stargate()(address)"),),
    unwrap=unwrap,
    position_type="LIQUIDITYPOOL",
    calls=(
        TypedCalls("ADDLIQUIDITY", "loss", ("deposit",)),
        TypedCalls("REMOVELIQUIDITY", "gain", ("redeem",)),
        TypedCalls("ADDLIQUIDITY", "issued", (), ("pool",)),
        TypedCalls("REMOVELIQUIDITY", "redeemed", (), ("pool",)),
    ),
)
