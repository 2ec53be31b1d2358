"""Contracts that keep one token for accounts and tell how much: single-asset stakes and locks."""

from __future__ import annotations

from adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, ProtocolMatch, Token
from adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount


def position(match: ProtocolMatch) -> DecoderPlan:
    """What an account has there, of the token that the file names as `staked_token`.

    Contracts differ in how they are asked: option `amount` is the signature of that call, `kind` the position's type.
    One that gives a token for what is kept is listed as `receipt`: that token is then the position, not a holding.
    """
    (raw,) = yield [Call(match.contract, match.options["amount"], (match.account,))]
    (token,) = match.contracts["staked_token"]
    replaces = (match.contract,) if match.contract in match.contracts.get("receipt", ()) else ()
    return DecodedPosition(
        match.options["kind"], supplied=(TokenAmount(token, raw),), pool=match.contract, replaces=replaces
    )


FAMILY = Family(
    "staked_balance",
    rules=(Counterparty("stake"), Token("receipt")),
    position=position,
    roles=("staked_token",),
    options=("amount", "kind"),
)
