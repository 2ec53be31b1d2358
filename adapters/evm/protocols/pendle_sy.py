"""Pendle's standardized yield: a share that gives the yield-bearing token which it was made of."""

from __future__ import annotations

from chainfolio.calls import Call, balance_of
from chainfolio.protocols import Decoding, Family, Found, Maybe, Met, Part, Token


def unwrap(met: Met, raw: int) -> Decoding:
    """The yield-bearing token that redeeming so many gives now.

    None where it is not redeemed into that, or promises more of it than lies there: anybody can make such a share.
    """
    share, token = met.contract, met.answer
    paid, there = yield [
        Maybe(Call(share, "previewRedeem(address,uint256)(uint256)", (token, raw))),
        Maybe(balance_of(token, share)),
    ]
    return None if paid is None or there is None or paid > there else (Part(token, paid),)


def position(met: Met) -> Decoding:
    """What the account's shares give; of other rewards only that there may be some."""
    held, rewards = yield [
        balance_of(met.contract, met.account),
        Maybe(Call(met.contract, "getRewardTokens()(address[])")),
    ]
    if not held or rewards is None or (parts := (yield from unwrap(met, held))) is None:
        return None
    unknown = "its rewards" if rewards else ""
    return Found("VAULT", supplied=parts, pool=met.contract, instead=(met.contract,), unknown=unknown)


FAMILY = Family("pendle_sy", rules=(Token(question="yieldToken()(address)"),), position=position, unwrap=unwrap)
