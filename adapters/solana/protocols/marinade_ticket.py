"""Marinade's tickets: SOL that comes back from stake, and is paid in the epoch after that in which it was asked for."""

from __future__ import annotations

from typing import Final

from adapters.solana.account_layouts import MarinadeTicket
from adapters.solana.account_reads import AccountRead
from adapters.solana.layouts import SYSTEM
from adapters.solana.positions import ACCOUNT, SLOT_MS, Claim, DecoderPlan, Family, Unreadable, sure
from chainfolio.plans import Unknown
from chainfolio.protocols import DecodedPosition, TokenAmount

STATE: Final = "state"  # the role of the account that says everything of the instance
WAIT_S: Final = 30 * 60  # after an epoch has begun, until its tickets are paid
EPOCH_SLOTS: Final = 432_000
STRANGE: Final = "it belongs to an instance of the program that its file does not name"
NOT_COVERED: Final = "there are fewer lamports for all tickets than it says"


def position(claim: Claim) -> DecoderPlan:
    """The lamports of a ticket, and when they are there: in the epoch after that in which it was made."""
    [said] = yield [AccountRead(claim.program, "marinade_ticket", (claim.subject,))]
    if isinstance(said, Unknown) and said.cause == "absent":
        return []
    made: MarinadeTicket = sure(said)
    if made.owner != claim.account:
        raise Unreadable(f"it is a ticket of {made.owner}")
    if not made.lamports:
        return []
    if made.epoch > claim.epoch:
        raise Unreadable(f"it was made in epoch {made.epoch}, which is to come")
    [state] = yield [AccountRead(claim.program, "marinade", (made.state,))]
    doubt = STRANGE
    if made.state in claim.contracts.get(STATE, ()):
        doubt = "" if made.lamports <= sure(state).ticketed else NOT_COVERED
    due = f"due in epoch {made.epoch + 1}" if made.epoch == claim.epoch else "due"
    return [
        DecodedPosition(
            "STAKED", supplied=(TokenAmount(SYSTEM, made.lamports),), name=f"Unstake ticket ({due})",
            unlock_s=_due_s(made.epoch, claim), pool=claim.subject, unverified=doubt,
        )
    ]  # fmt: skip


def _due_s(made: int, claim: Claim) -> int:
    """When a ticket is paid, by as many slots as an epoch has, at their usual pace; 0 where that is over."""
    if claim.epoch > made + 1:
        return 0
    first = (made + 1) * EPOCH_SLOTS
    due_s = claim.time_s + (first - claim.slot) * SLOT_MS // 1000 + WAIT_S
    return due_s if due_s > claim.time_s else 0


FAMILY = Family("marinade_ticket", position=position, stands=ACCOUNT, owned=("marinade_ticket", 40), roles=(STATE,))
