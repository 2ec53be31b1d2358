"""Pendle's principal tokens, redeemed after expiry, and yield tokens, which earn until then."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call, balance_of
from chainfolio.protocols import DecodedPosition, TokenAmount

WAD = 10**18
IS_PRINCIPAL, IS_YIELD = "isPT(address)(bool)", "isYT(address)(bool)"
EXPIRED, SHARE = "isExpired()(bool)", "SY()(address)"
DUE = "redeemDueInterestAndRewards(address,bool,bool)(uint256,uint256[])"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode expired principal as its redemption, and a yield token with what claiming would pay now.

    Principal before its expiry stays the token that it is: only the market prices it (None). A yield token is worth
    nothing after expiry, but what it earned can still be claimed: standardized yield, which is a share of something and
    therefore counts as supplied, so that it is unfolded. None if the factory does not know the token.
    """
    token, account = match.contract, match.account
    is_principal, is_yield, balance = yield [
        Call(match.answer, IS_PRINCIPAL, (token,)),
        Call(match.answer, IS_YIELD, (token,)),
        balance_of(token, account),
    ]
    if is_principal:
        parts = (yield from _redeem_principal(token, balance)) if balance else None
        return (
            DecodedPosition("YIELD", supplied=parts, name="Principal", pool=token, replaces=(token,)) if parts else None
        )
    if not is_yield:
        return None
    is_expired, share, reward_tokens, due = yield [
        Call(token, EXPIRED),
        Call(token, SHARE),
        Call(token, "getRewardTokens()(address[])"),
        MayRefuse(Call(token, DUE, (account, True, True), alone=True)),
    ]
    interest, rewards = due or (0, (0,) * len(reward_tokens))
    return DecodedPosition(
        "YIELD",
        supplied=(TokenAmount(token, 0 if is_expired else balance), TokenAmount(share, interest)),
        rewards=tuple(TokenAmount(*reward) for reward in zip(reward_tokens, rewards, strict=True)),
        name="Yield",
        pool=token,
        replaces=(token,),
        unknown="what it has earned" if due is None else "",
    )


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return what redeeming expired principal pays; None before expiry or for an unknown token."""
    (is_principal,) = yield [Call(match.answer, IS_PRINCIPAL, (match.contract,))]
    return (yield from _redeem_principal(match.contract, raw)) if is_principal else None


def _redeem_principal(principal: str, raw: int) -> DecoderPlan:
    """Return principal as standardized yield, at the index that redeeming would use; None before expiry."""
    is_expired, yield_token, share = yield [
        Call(principal, EXPIRED),
        Call(principal, "YT()(address)"),
        Call(principal, SHARE),
    ]
    if not is_expired:
        return None
    (index,) = yield [Call(yield_token, "pyIndexCurrent()(uint256)", alone=True)]
    return (TokenAmount(share, raw * WAD // index),)


FAMILY = Family(
    "pendle_yield",
    rules=(Token(role="yield_contract_factory", question="factory()(address)"),),
    position=position,
    unwrap=unwrap,
)
