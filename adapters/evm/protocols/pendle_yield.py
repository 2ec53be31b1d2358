"""Pendle's split of a yield: principal, which is redeemed at its expiry, and the right to what is earned until then."""

from __future__ import annotations

from chainfolio.calls import Call, balance_of
from chainfolio.protocols import Decoding, Family, Found, Maybe, Met, Part, Token

WAD = 10**18
IS_PRINCIPAL, IS_YIELD = "isPT(address)(bool)", "isYT(address)(bool)"
EXPIRED, SHARE = "isExpired()(bool)", "SY()(address)"
DUE = "redeemDueInterestAndRewards(address,bool,bool)(uint256,uint256[])"


def position(met: Met) -> Decoding:
    """What principal gives once it has expired, or what a yield token has earned by now, as claiming would pay it.

    Principal before its expiry is worth what somebody pays for it: it stays the token that it is. A yield token after
    it is worth nothing more, but what it had earned can still be claimed. That is standardized yield, a share of
    something, and so lies among what was supplied, which is unfolded.
    """
    token, account = met.contract, met.account
    principal, yields, held = yield [
        Call(met.answer, IS_PRINCIPAL, (token,)),
        Call(met.answer, IS_YIELD, (token,)),
        balance_of(token, account),
    ]
    if principal:
        parts = (yield from _redeemed(token, held)) if held else None
        return Found("YIELD", supplied=parts, name="Principal", pool=token, instead=(token,)) if parts else None
    if not yields:
        return None
    expired, share, others, due = yield [
        Call(token, EXPIRED),
        Call(token, SHARE),
        Call(token, "getRewardTokens()(address[])"),
        Maybe(Call(token, DUE, (account, True, True), alone=True)),
    ]
    interest, earned = due or (0, (0,) * len(others))
    return Found(
        "YIELD",
        supplied=(Part(token, 0 if expired else held), Part(share, interest)),
        rewards=tuple(Part(other, raw) for other, raw in zip(others, earned, strict=True)),
        name="Yield",
        pool=token,
        instead=(token,),
        unknown="what it has earned" if due is None else "",
    )


def unwrap(met: Met, raw: int) -> Decoding:
    """What so much principal gives once it has expired; None before, and where the factory does not know it."""
    (principal,) = yield [Call(met.answer, IS_PRINCIPAL, (met.contract,))]
    return (yield from _redeemed(met.contract, raw)) if principal else None


def _redeemed(principal: str, raw: int) -> Decoding:
    """So much principal as standardized yield, at the index that redeeming would bring up to date."""
    expired, twin, share = yield [
        Call(principal, EXPIRED),
        Call(principal, "YT()(address)"),
        Call(principal, SHARE),
    ]
    if not expired:
        return None
    (index,) = yield [Call(twin, "pyIndexCurrent()(uint256)", alone=True)]
    return (Part(share, raw * WAD // index),)


FAMILY = Family(
    "pendle_yield",
    rules=(Token(role="yield_contract_factory", question="factory()(address)"),),
    position=position,
    unwrap=unwrap,
)
