"""Permit2: the events that name a permission inside it, and what says how much of it is left.

Two events name one: an owner's own (`Approval`) and one by his signature (`Permit`). What ends or uses one up
(`Lockdown`, `NonceInvalidation`, a transfer) is seen in what is left of it, so nobody has to index that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from adapters.evm.positions.events import declared

EVENTS: Final = tuple(
    declared(f"{name}(address indexed owner, address indexed token, address indexed spender, {rest})")
    for name, rest in (
        ("Approval", "uint160 amount, uint48 expiration"),
        ("Permit", "uint160 amount, uint48 expiration, uint48 nonce"),
    )
)
OWNER_TOPIC: Final = 1


def token_and_spender(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """What an event says in its topics of a row of `account_events`; None where the row's account is not the owner."""
    if row["place"] != OWNER_TOPIC:
        return None
    return f"0x{row['topic2'][-40:]}", f"0x{row['topic3'][-40:]}"


def filters(contracts: Collection[str]) -> tuple[str, ...]:
    """The filters of the dataset `events` for these Permit2 contracts."""
    return tuple(sorted(event.filter(contract) for contract in contracts for event in EVENTS))
