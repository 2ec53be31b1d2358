"""Contracts that hold one token for accounts and return the amount: single-asset stakes and locks."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the account's amount of the file's `staked_token`, also if it is zero.

    Option `amount` is the signature of the call that returns the amount, `kind` the position's type. A contract that
    gives a token as a receipt is listed as `receipt`: the position then replaces that token.
    """
    (raw,) = yield [Call(match.contract, match.options["amount"], (match.account,))]
    (token,) = match.contracts["staked_token"]
    replaces = (match.contract,) if match.is_listed("receipt") else ()
    stake = TokenAmount(token, raw)
    return DecodedPosition(match.options["kind"], supplied=(stake,), pool=match.contract, replaces=replaces)


FAMILY = Family(
    "staked_balance",
    rules=(Counterparty("stake"), Token("receipt")),
    position=position,
    roles=("staked_token",),
    options=("amount", "kind"),
    calls=(
        TypedCalls("STAKE", "loss", (), ("stake", "receipt")),
        TypedCalls("CLAIM", "gain", ("claim", "getReward")),
        TypedCalls("UNSTAKE", "gain", (), ("stake", "receipt")),
    ),
)
