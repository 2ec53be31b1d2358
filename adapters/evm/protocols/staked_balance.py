"""Contracts that keep one token for accounts and tell how much: single-asset stakes and locks."""

from __future__ import annotations

from chainfolio.calls import Call
from chainfolio.protocols import Counterparty, Decoding, Family, Found, Met, Part, Token


def position(met: Met) -> Decoding:
    """What an account has there, of the token that the file names as `staked_token`.

    Contracts differ in how they are asked: option `amount` is the signature of that call, `kind` the position's type.
    One that gives a token for what is kept is listed as `receipt`: that token is then the position, not a holding.
    """
    (raw,) = yield [Call(met.contract, met.options["amount"], (met.account,))]
    (token,) = met.contracts["staked_token"]
    instead = (met.contract,) if met.contract in met.contracts.get("receipt", ()) else ()
    return Found(met.options["kind"], supplied=(Part(token, raw),), pool=met.contract, instead=instead)


FAMILY = Family(
    "staked_balance",
    rules=(Counterparty("stake"), Token("receipt")),
    position=position,
    roles=("staked_token",),
    options=("amount", "kind"),
)
