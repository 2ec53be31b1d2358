"""Pendle's standardized yield: a share that gives the yield-bearing token which it was made of.

Anybody can make one. Those that the file names as `sy` are Pendle's choice; of others a share counts only if it came to
the account by an act of its own, and if what lies there pays all of them.
"""

from __future__ import annotations

from adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, Token, covered
from adapters.evm.reads import Call, balance_of
from chainfolio.protocols import DecodedPosition, TokenAmount, Unlisted, Unverified

YIELD_TOKEN = "yieldToken()(address)"
NOT_COVERED = "no file names this standardized yield, and what lies there does not cover what it promises for all of it"


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """The yield-bearing token that redeeming so many gives now; None where it is not redeemed into that."""
    share = match.contract
    token = match.answer if match.answer != share else (yield [Call(share, YIELD_TOKEN)])[0]
    paid, there, supply = yield [
        MayRefuse(Call(share, "previewRedeem(address,uint256)(uint256)", (token, raw))),
        MayRefuse(balance_of(token, share)),
        MayRefuse(Call(share, "totalSupply()(uint256)")),
    ]
    if paid is None:
        return None
    parts = (TokenAmount(token, paid),)
    if match.is_listed("sy"):
        return parts
    is_covered = None not in (there, supply) and covered(paid, raw, held=there, supply=supply)
    return Unlisted(parts) if is_covered else Unverified(NOT_COVERED)


def position(match: ProtocolMatch) -> DecoderPlan:
    """What the account's shares give; of other rewards only that there may be some."""
    share = match.contract
    held, rewards = yield [
        balance_of(share, match.account),
        MayRefuse(Call(share, "getRewardTokens()(address[])")),
    ]
    if not held or rewards is None:
        return None
    given = yield from unwrap(match, held)
    if given is None or isinstance(given, Unverified):
        return given
    unlisted = isinstance(given, Unlisted)
    return DecodedPosition(
        "VAULT",
        supplied=given.parts if unlisted else given,
        pool=share,
        replaces=(share,),
        unknown="its rewards" if rewards else "",
        unlisted=unlisted,
    )


FAMILY = Family("pendle_sy", rules=(Token("sy"), Token(question=YIELD_TOKEN)), position=position, unwrap=unwrap)
