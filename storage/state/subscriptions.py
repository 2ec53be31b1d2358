"""Subscriptions: addresses with daily snapshots for an account, with their end.

Call these functions in a transaction in which the account is locked (`accounts.lock`). Addresses are canonical.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from chainfolio.storage.state import audit, schema
from chainfolio.storage.state.database import Statement, Transaction, argument, only_row
from chainfolio.storage.state.refusals import Refusal


@dataclass(frozen=True, slots=True)
class Subscription:
    """One address with daily snapshots from `began_us` until `expires_us`."""

    address: str
    description: str
    began_us: int
    expires_us: int


_ROWS = schema.subscriptions
_COLUMNS = [_ROWS.c[name] for name in Subscription.__slots__]
_OF = argument("account_id")
_ALL = Statement(sa.select(*_COLUMNS).where(_ROWS.c.account_id == _OF).order_by(_ROWS.c.began_us, _ROWS.c.address))
_ONE = Statement(sa.select(*_COLUMNS).where(_ROWS.c.account_id == _OF, _ROWS.c.address == argument("address")))
_RUNNING = Statement(
    sa.select(_ROWS.c.address, sa.func.min(_ROWS.c.began_us))
    .where(_ROWS.c.expires_us > argument("now_us"))
    .group_by(_ROWS.c.address)
)
_SOLD = Statement(
    sa.select(_ROWS.c.account_id, _ROWS.c.address, _ROWS.c.expires_us)
    .where(_ROWS.c.expires_us > argument("now_us"))
    .order_by(_ROWS.c.account_id, _ROWS.c.address)
)
_ADD = Statement(_ROWS.insert())
_DROP = Statement(_ROWS.delete().where(_ROWS.c.account_id == argument("owner"), _ROWS.c.address == argument("wallet")))


def every(tx: Transaction, account_id: str) -> list[Subscription]:
    """Return an account's subscriptions, the expired ones included, the oldest first."""
    return [Subscription(*row) for row in tx.rows(_ALL, account_id=account_id)]


def subscribed(tx: Transaction, account_id: str, addresses: Iterable[str], now_us: int) -> set[str]:
    """Return the addresses whose subscription has not expired."""
    by_address = {each: _find(tx, account_id, each) for each in addresses}
    return {address for address, row in by_address.items() if row is not None and row.expires_us > now_us}


def running(tx: Transaction, now_us: int) -> dict[str, int]:
    """Return all addresses with a subscription that has not expired, with the earliest start of each."""
    return {address: int(began_us) for address, began_us in tx.rows(_RUNNING, now_us=now_us)}


def sold(tx: Transaction, now_us: int) -> list[tuple[str, str, int]]:
    """Return the subscriptions that have not expired: account, address, and the end in microseconds."""
    return [(str(owner), str(address), int(until_us)) for owner, address, until_us in tx.rows(_SOLD, now_us=now_us)]


def add(
    tx: Transaction, account_id: str, descriptions: Mapping[str, str], now_us: int, actor: str = audit.OPERATOR
) -> list[Subscription]:
    """Subscribe to addresses for one year from now, and return the subscriptions.

    An expired one starts again.

    Args:
        descriptions: Texts by address.

    Raises:
        Refusal: An address is subscribed to already (ALREADY_SUBSCRIBED); nothing is changed.
    """
    active = sorted(subscribed(tx, account_id, descriptions, now_us), key=list(descriptions).index)
    if active:
        raise Refusal("ALREADY_SUBSCRIBED", f"already subscribed to {', '.join(active)}", addresses=active)
    new = [Subscription(each, text, now_us, one_year_after(now_us)) for each, text in descriptions.items()]
    for each in new:
        tx.run(_DROP, owner=account_id, wallet=each.address)
    tx.run_many(_ADD, [(account_id, each.address, each.description, each.began_us, each.expires_us) for each in new])
    audit.record(tx, now_us, actor, account_id, "subscribed", {"addresses": [each.address for each in new]})
    return new


def one_year_after(at_us: int) -> int:
    """Return the same day and time of the next year in UTC; 29 February becomes 1 March."""
    seconds, rest_us = divmod(at_us, 1_000_000)
    at = datetime.fromtimestamp(seconds, UTC)
    leap = at.month == 2 and at.day == 29
    later = at.replace(year=at.year + 1, month=3, day=1) if leap else at.replace(year=at.year + 1)
    return int(later.timestamp()) * 1_000_000 + rest_us


def _find(tx: Transaction, account_id: str, address: str) -> Subscription | None:
    row = only_row(tx.rows(_ONE, account_id=account_id, address=address))
    return Subscription(*row) if row else None
