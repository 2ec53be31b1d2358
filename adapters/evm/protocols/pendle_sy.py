"""Pendle's standardized yield: a share that gives the yield-bearing token which it was made of.

Anybody can make one. Those that the file names as `sy` are Pendle's choice; of others a share counts only if it came to
the account by an act of its own, and if what lies there pays all of them.
"""

from __future__ import annotations

from chainfolio.calls import Call, balance_of
from chainfolio.protocols import Decoding, Family, Found, Maybe, Met, Part, Token, Unlisted, Unverified, covered

YIELD_TOKEN = "yieldToken()(address)"
NOT_COVERED = "no file names this standardized yield, and what lies there does not cover what it promises for all of it"


def unwrap(met: Met, raw: int) -> Decoding:
    """The yield-bearing token that redeeming so many gives now; None where it is not redeemed into that."""
    share = met.contract
    token = met.answer if met.answer != share else (yield [Call(share, YIELD_TOKEN)])[0]
    paid, there, supply = yield [
        Maybe(Call(share, "previewRedeem(address,uint256)(uint256)", (token, raw))),
        Maybe(balance_of(token, share)),
        Maybe(Call(share, "totalSupply()(uint256)")),
    ]
    if paid is None:
        return None
    parts = (Part(token, paid),)
    if met.is_listed("sy"):
        return parts
    is_covered = None not in (there, supply) and covered(paid, raw, held=there, supply=supply)
    return Unlisted(parts) if is_covered else Unverified(NOT_COVERED)


def position(met: Met) -> Decoding:
    """What the account's shares give; of other rewards only that there may be some."""
    share = met.contract
    held, rewards = yield [
        balance_of(share, met.account),
        Maybe(Call(share, "getRewardTokens()(address[])")),
    ]
    if not held or rewards is None:
        return None
    given = yield from unwrap(met, held)
    if given is None or isinstance(given, Unverified):
        return given
    unlisted = isinstance(given, Unlisted)
    return Found(
        "VAULT",
        supplied=given.parts if unlisted else given,
        pool=share,
        instead=(share,),
        unknown="its rewards" if rewards else "",
        unlisted=unlisted,
    )


FAMILY = Family("pendle_sy", rules=(Token("sy"), Token(question=YIELD_TOKEN)), position=position, unwrap=unwrap)
