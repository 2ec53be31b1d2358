"""The kinds of movements by the type of a transaction, and entries whose value is not known."""

from __future__ import annotations

from typing import Final

from chainfolio.portfolio.pnl.entries import ACQUIRED, UNASKED, Entry, Kind

DEPOSITS: Final = frozenset({"DEPOSIT", "LEND", "STAKE", "ADDLIQUIDITY", "BRIDGEOUT"})
WITHDRAWALS: Final = frozenset({"WITHDRAW", "UNSTAKE", "REMOVELIQUIDITY"})
LOANS: Final = frozenset({"BORROW", "OPENVAULT"})  # what comes is a loan, and what leaves its collateral
REPAYMENTS: Final = frozenset({"REPAYVAULT", "CLOSEVAULT"})
INCOME: Final = frozenset({"CLAIM", "AIRDROP", "COLLECT", "MINT"})
PAYMENTS: Final = frozenset({"INTERACTION", "UNDEFINED", "TRANSFEROUT"})  # of no known type
UNTYPED: Final = frozenset({"INTERACTION", "UNDEFINED", "TRANSFERIN"})
UNREAD_CHANGES: Final = "a protocol could not read how it changed positions: gains of what it moved are not known"


def with_unread_changes(entry: Entry) -> Entry:
    """Return an entry without a value, unless it is a fee."""
    return entry if entry.kind == "fee" else entry._replace(value=None, reason=UNREAD_CHANGES)


def without_trust(entry: Entry) -> Entry:
    """Return an entry of an untrusted asset as `unasked` (in) or `taken` (out), without a value and a fee.

    A purchase or sale with a value, and a deposit, are unchanged. A withdrawal keeps its kind and value, and gets only
    the reason, because deposits are not known here.
    """
    if entry.kind == "withdraw":
        return entry._replace(reason=UNASKED)
    if entry.kind == "deposit" or (entry.kind in ("buy", "sell") and entry.value is not None):
        return entry
    return entry._replace(kind="unasked" if entry.kind in ACQUIRED else "taken", value=None, fee=0, reason=UNASKED)


def default_kinds(has_incoming: bool, has_outgoing: bool) -> tuple[Kind, Kind]:
    """Return the kinds of incoming and outgoing assets if the type decides nothing."""
    return ("buy", "sell") if has_incoming and has_outgoing else ("received", "sent")
