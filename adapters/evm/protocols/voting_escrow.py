"""Curve's VotingEscrow and its forks: tokens locked until a chosen time, which may earn fees."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

LOCKED = "locked(address)(int128,uint256)"
NO_FEES = "none"
FEES = "the fees that it may have earned"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the locked tokens of an account, also if nothing is locked.

    Option `locked` is the call that returns amount and time, for escrows that name it differently. Fees are what each
    `fee_distributor` of the file would pay now, in its only token. If something is locked, fees are reported as
    unknown if the file names none or one refuses, unless option `fees` is "none".
    """
    file_tokens = match.contracts.get("locked_token", ())
    distributors = match.contracts.get("fee_distributor", ())
    (raw, unlock_s), *results = yield [
        Call(match.contract, match.options.get("locked", LOCKED), (match.account,)),
        *([] if file_tokens else [Call(match.contract, "token()(address)")]),
        *(MayRefuse(Call(distributor, "token()(address)")) for distributor in distributors),
        # `claim` returns what it pays; after a long time without claims, only the first year of it.
        *(
            MayRefuse(Call(distributor, "claim(address)(uint256)", (match.account,), alone=True))
            for distributor in distributors
        ),
    ]
    token = file_tokens[0] if file_tokens else results.pop(0)
    fees = list(zip(results[: len(distributors)], results[len(distributors) :], strict=True))
    are_known = bool(distributors) and all(None not in fee for fee in fees)
    may_have_fees = bool(raw) and match.options.get("fees") != NO_FEES
    return DecodedPosition(
        "LOCKED",
        supplied=(TokenAmount(token, raw),),
        rewards=tuple(TokenAmount(*fee) for fee in fees if None not in fee),
        unlock_s=unlock_s,
        pool=match.contract,
        unknown=FEES if may_have_fees and not are_known else "",
    )


FAMILY = Family(
    "voting_escrow",
    rules=(Counterparty("voting_escrow"),),
    position=position,
    roles=("locked_token", "fee_distributor"),
    options=("locked", "fees"),
    calls=(
        TypedCalls("STAKE", "loss", ("create_lock", "increase_amount", "deposit_for", "increaseLockPosition")),
        TypedCalls("UNSTAKE", "gain", ("withdraw",)),
        TypedCalls("STAKE", "loss", (), ("voting_escrow",)),
        TypedCalls("UNSTAKE", "gain", (), ("voting_escrow",)),
    ),
)
