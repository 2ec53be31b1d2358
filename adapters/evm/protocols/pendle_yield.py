"""Pendle's split of a yield: principal, which is redeemed at its expiry, and the right to what is earned until then."""

from __future__ import annotations

from adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, Token
from adapters.evm.reads import Call, balance_of
from chainfolio.protocols import DecodedPosition, TokenAmount

WAD = 10**18
IS_PRINCIPAL, IS_YIELD = "isPT(address)(bool)", "isYT(address)(bool)"
EXPIRED, SHARE = "isExpired()(bool)", "SY()(address)"
DUE = "redeemDueInterestAndRewards(address,bool,bool)(uint256,uint256[])"


def position(match: ProtocolMatch) -> DecoderPlan:
    """What principal gives once it has expired, or what a yield token has earned by now, as claiming would pay it.

    Principal before its expiry is worth what somebody pays for it: it stays the token that it is. A yield token after
    it is worth nothing more, but what it had earned can still be claimed. That is standardized yield, a share of
    something, and so lies among what was supplied, which is unfolded.
    """
    token, account = match.contract, match.account
    principal, yields, held = yield [
        Call(match.answer, IS_PRINCIPAL, (token,)),
        Call(match.answer, IS_YIELD, (token,)),
        balance_of(token, account),
    ]
    if principal:
        parts = (yield from _redeemed(token, held)) if held else None
        return (
            DecodedPosition("YIELD", supplied=parts, name="Principal", pool=token, replaces=(token,)) if parts else None
        )
    if not yields:
        return None
    expired, share, others, due = yield [
        Call(token, EXPIRED),
        Call(token, SHARE),
        Call(token, "getRewardTokens()(address[])"),
        MayRefuse(Call(token, DUE, (account, True, True), alone=True)),
    ]
    interest, earned = due or (0, (0,) * len(others))
    return DecodedPosition(
        "YIELD",
        supplied=(TokenAmount(token, 0 if expired else held), TokenAmount(share, interest)),
        rewards=tuple(TokenAmount(other, raw) for other, raw in zip(others, earned, strict=True)),
        name="Yield",
        pool=token,
        replaces=(token,),
        unknown="what it has earned" if due is None else "",
    )


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """What so much principal gives once it has expired; None before, and where the factory does not know it."""
    (principal,) = yield [Call(match.answer, IS_PRINCIPAL, (match.contract,))]
    return (yield from _redeemed(match.contract, raw)) if principal else None


def _redeemed(principal: str, raw: int) -> DecoderPlan:
    """So much principal as standardized yield, at the index that redeeming would bring up to date."""
    expired, twin, share = yield [
        Call(principal, EXPIRED),
        Call(principal, "YT()(address)"),
        Call(principal, SHARE),
    ]
    if not expired:
        return None
    (index,) = yield [Call(twin, "pyIndexCurrent()(uint256)", alone=True)]
    return (TokenAmount(share, raw * WAD // index),)


FAMILY = Family(
    "pendle_yield",
    rules=(Token(role="yield_contract_factory", question="factory()(address)"),),
    position=position,
    unwrap=unwrap,
)
