"""Permit2: the events that grant permissions inside it, and how to find them in the index.

Two events grant one: the owner's own (`Approval`) and one by the owner's signature (`Permit`). The events that end or
use one up (`Lockdown`, `NonceInvalidation`, a transfer) need no index, because the remaining amount is read.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.interactions import EventRow

EVENTS: Final = tuple(
    parse_event(f"{name}(address indexed owner, address indexed token, address indexed spender, {parameters})")
    for name, parameters in (
        ("Approval", "uint160 amount, uint48 expiration"),
        ("Permit", "uint160 amount, uint48 expiration, uint48 nonce"),
    )
)
OWNER_TOPIC: Final = 1


def token_and_spender(row: EventRow) -> tuple[str, str] | None:
    """Return the token and the spender in a row of `account_events`; None if its account is not the owner."""
    if row["place"] != OWNER_TOPIC:
        return None
    return f"0x{row['topic2'][-40:]}", f"0x{row['topic3'][-40:]}"


def filters(contracts: Collection[str]) -> tuple[str, ...]:
    """Return the filters of the dataset `events` for these Permit2 contracts."""
    return tuple(sorted(event.filter(contract) for contract in contracts for event in EVENTS))
