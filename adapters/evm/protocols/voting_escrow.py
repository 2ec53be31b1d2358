"""Curve's VotingEscrow and its forks: tokens that are locked until a time of the account's choice, and earn fees."""

from __future__ import annotations

from adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, MayRefuse, ProtocolMatch
from adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount

LOCKED = "locked(address)(int128,uint256)"
NO_FEES = "none"
FEES = "the fees that it may have earned"


def position(match: ProtocolMatch) -> DecoderPlan:
    """What an account has locked, and until when: in the file's `locked_token`, else in what the escrow says.

    Escrows that are asked in other words have that call as option `locked`: it answers with the amount and the time.
    Fees are what each `fee_distributor` of the file would pay now, in the one token that it pays in. Where the file
    names none, they are said to be unknown, unless its option `fees` is "none".
    """
    named = match.contracts.get("locked_token", ())
    distributors = match.contracts.get("fee_distributor", ())
    (raw, until), *told = yield [
        Call(match.contract, match.options.get("locked", LOCKED), (match.account,)),
        *([] if named else [Call(match.contract, "token()(address)")]),
        *(MayRefuse(Call(each, "token()(address)")) for each in distributors),
        # It pays, and answers with how much that was; of somebody who waited long, the first year of it.
        *(MayRefuse(Call(each, "claim(address)(uint256)", (match.account,), alone=True)) for each in distributors),
    ]
    token = named[0] if named else told.pop(0)
    fees = list(zip(told[: len(distributors)], told[len(distributors) :], strict=True))
    are_known = bool(distributors) and all(None not in each for each in fees)
    may_have_some = bool(raw) and match.options.get("fees") != NO_FEES
    return DecodedPosition(
        "LOCKED",
        supplied=(TokenAmount(token, raw),),
        rewards=tuple(TokenAmount(paid_in, earned) for paid_in, earned in fees if None not in (paid_in, earned)),
        unlock_s=until,
        pool=match.contract,
        unknown=FEES if may_have_some and not are_known else "",
    )


FAMILY = Family(
    "voting_escrow",
    rules=(Counterparty("voting_escrow"),),
    position=position,
    roles=("locked_token", "fee_distributor"),
    options=("locked", "fees"),
)
