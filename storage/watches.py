"""Watched accounts of API requests: their owner, their end, and the limits of their number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chainfolio.storage.tail_database import Transaction

_ADD = (
    "INSERT INTO watches (chain, account, owner, first, sold, expires_us) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (chain, account, owner) DO UPDATE SET "
)
_LATER = (
    "expires_us = CASE WHEN excluded.expires_us > watches.expires_us THEN excluded.expires_us "
    "ELSE watches.expires_us END"
)


@dataclass(frozen=True, slots=True)
class OwnedWatch:
    """An account that is watched for an owner until `expires_us`. A sold watch was paid for."""

    account: str
    owner: str
    is_sold: bool
    expires_us: int


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """The end and the limits of watches that are not sold.

    Attributes:
        max_count: Limit over all owners.
        max_per_owner: Limit of one owner.
    """

    now_us: int
    expires_us: int
    max_count: int
    max_per_owner: int


def add_sold(tx: Transaction, chain: str, first: int, watches: Iterable[OwnedWatch]) -> None:
    """Add watches that were paid for, or extend their end. Repeating the call changes nothing."""
    tx.run_many(
        f"{_ADD}sold = 1, {_LATER}",
        [(chain, each.account, each.owner, first, 1, each.expires_us) for each in watches],
    )


def add_synced(
    tx: Transaction, chain: str, first: int, owner: str, accounts: Iterable[str], terms: WatchLimits
) -> list[str]:
    """Add or extend unpaid watches of one owner within the limits, and remove all watches that have ended.

    Sold watches of the owner stay unchanged.

    Returns:
        The accounts that exceed the limits.
    """
    tx.run("DELETE FROM watches WHERE chain = ? AND expires_us <= ?", chain, terms.now_us)
    rows = tx.rows("SELECT owner, account, sold FROM watches WHERE chain = ? AND owner <> ''", chain)
    sold_by_account = {account: sold for holder, account, sold in rows if holder == owner}
    count, own_count = sum(not sold for _, _, sold in rows), sum(not sold for sold in sold_by_account.values())
    room = max(0, min(terms.max_count - count, terms.max_per_owner - own_count))
    distinct = list(dict.fromkeys(accounts))
    new = [each for each in distinct if each not in sold_by_account]
    tx.run_many(
        f"{_ADD}{_LATER} WHERE watches.sold = 0",
        [
            (chain, each, owner, first, 0, terms.expires_us)
            for each in distinct
            if each in sold_by_account or each in new[:room]
        ],
    )
    return new[room:]


@dataclass(frozen=True, slots=True)
class WatchedAccount:
    """An account whose history is indexed from `first` on, up to `last`; None: new blocks too."""

    account: str
    first: int
    last: int | None = None
