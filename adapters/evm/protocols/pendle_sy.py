"""Pendle's standardized yield: a share that is redeemed for a yield-bearing token.

Anybody can deploy one. Those that the file names as `sy` are Pendle's choice; shares of others count only if they came
to the account by its own action, and if the tokens there are enough for all holders.
"""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, Token, is_backed
from chainfolio.adapters.evm.reads import Call, balance_of
from chainfolio.protocols import DecodedPosition, TokenAmount, UnlistedShare, UnverifiedShare

YIELD_TOKEN = "yieldToken()(address)"
NOT_COVERED = "no file names this standardized yield, and what lies there does not cover what it promises for all of it"


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return the yield-bearing token that redeeming `raw` shares pays now; None if it pays another.

    A share that the file does not name is an UnlistedShare, or an UnverifiedShare if what lies there does not cover it.
    """
    share = match.contract
    token = match.answer if match.answer != share else (yield [Call(share, YIELD_TOKEN)])[0]
    payout, balance, supply = yield [
        MayRefuse(Call(share, "previewRedeem(address,uint256)(uint256)", (token, raw))),
        MayRefuse(balance_of(token, share)),
        MayRefuse(Call(share, "totalSupply()(uint256)")),
    ]
    if payout is None:
        return None
    parts = (TokenAmount(token, payout),)
    if match.is_listed("sy"):
        return parts
    if None not in (balance, supply) and is_backed(payout, raw, assets=balance, supply=supply):
        return UnlistedShare(parts)
    return UnverifiedShare(NOT_COVERED)


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the account's shares; rewards are reported as unknown if there are reward tokens.

    None if the account holds none, or if the contract is no standardized yield. An UnverifiedShare as in `unwrap`.
    """
    share = match.contract
    balance, reward_tokens = yield [
        balance_of(share, match.account),
        MayRefuse(Call(share, "getRewardTokens()(address[])")),
    ]
    if not balance or reward_tokens is None:
        return None
    unwrapped = yield from unwrap(match, balance)
    if unwrapped is None or isinstance(unwrapped, UnverifiedShare):
        return unwrapped
    unlisted = isinstance(unwrapped, UnlistedShare)
    return DecodedPosition(
        "VAULT",
        supplied=unwrapped.parts if unlisted else unwrapped,
        pool=share,
        replaces=(share,),
        unknown="its rewards" if reward_tokens else "",
        is_unlisted=unlisted,
    )


FAMILY = Family("pendle_sy", rules=(Token("sy"), Token(question=YIELD_TOKEN)), position=position, unwrap=unwrap)
