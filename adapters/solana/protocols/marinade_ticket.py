"""Marinade's unstake tickets: SOL that is paid in the epoch after the order."""

from __future__ import annotations

from typing import Final

from chainfolio.adapters.solana.account_reads import AccountRead
from chainfolio.adapters.solana.account_records import MarinadeTicket
from chainfolio.adapters.solana.layouts import SYSTEM
from chainfolio.adapters.solana.positions import ACCOUNT, SLOT_MS, Claim, DecoderPlan, Family, Unreadable, require
from chainfolio.plans import Unknown
from chainfolio.protocols import DecodedPosition, TokenAmount

STATE: Final = "state"  # the role of the instance's state account in the protocol's file
PAYOUT_DELAY_S: Final = 30 * 60  # between the start of an epoch and the payment of its tickets
EPOCH_SLOTS: Final = 432_000
UNLISTED_INSTANCE: Final = "it belongs to an instance of the program that its file does not name"
NOT_COVERED: Final = "there are fewer lamports for all tickets than it says"


def position(claim: Claim) -> DecoderPlan:
    """Decode a ticket: its lamports, and the time of their payment.

    Returns an empty list if the ticket is closed or empty.

    Raises:
        Unreadable: An account could not be read, or the ticket has another owner or a future epoch.
    """
    [result] = yield [AccountRead(claim.program, "marinade_ticket", (claim.subject,))]
    if isinstance(result, Unknown) and result.cause == "absent":
        return []
    ticket: MarinadeTicket = require(result)
    if ticket.owner != claim.account:
        raise Unreadable(f"it is a ticket of {ticket.owner}")
    if not ticket.lamports:
        return []
    if ticket.epoch > claim.epoch:
        raise Unreadable(f"it was made in epoch {ticket.epoch}, which is to come")
    [state] = yield [AccountRead(claim.program, "marinade", (ticket.state,))]
    unverified = UNLISTED_INSTANCE
    if ticket.state in claim.contracts.get(STATE, ()):
        unverified = "" if ticket.lamports <= require(state).ticket_lamports else NOT_COVERED
    due = f"due in epoch {ticket.epoch + 1}" if ticket.epoch == claim.epoch else "due"
    return [
        DecodedPosition(
            "STAKED",
            supplied=(TokenAmount(SYSTEM, ticket.lamports),),
            name=f"Unstake ticket ({due})",
            unlock_s=_payout_s(ticket.epoch, claim),
            pool=claim.subject,
            unverified=unverified,
        )
    ]


def _payout_s(ticket_epoch: int, claim: Claim) -> int:
    """Return the estimated time of payment, by full epochs at the usual pace; 0 if it is in the past."""
    if claim.epoch > ticket_epoch + 1:
        return 0
    first_slot = (ticket_epoch + 1) * EPOCH_SLOTS
    payout_s = claim.time_s + (first_slot - claim.slot) * SLOT_MS // 1000 + PAYOUT_DELAY_S
    return payout_s if payout_s > claim.time_s else 0


FAMILY = Family(
    "marinade_ticket", position=position, claim_kind=ACCOUNT, owner_field=("marinade_ticket", 40), roles=(STATE,)
)
