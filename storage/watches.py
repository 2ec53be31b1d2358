"""Places among the watched accounts: whose they are, until when, and who gets one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import apsw

_ADD = (
    "INSERT INTO watches (chain, account, owner, first, sold, expires_us) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET "
)


@dataclass(frozen=True, slots=True)
class WatchPlace:
    """A place that an owner has until `expires_us`; a sold one was paid for."""

    account: str
    owner: str
    is_sold: bool
    expires_us: int


@dataclass(frozen=True, slots=True)
class PlaceTerms:
    """When places that are not sold end, and how many of them there are at most: of all owners, and of one."""

    now_us: int
    expires_us: int
    most: int
    most_of_owner: int


def add_sold(connection: apsw.Connection, chain: str, first: int, places: Iterable[WatchPlace]) -> None:
    """Add places that were paid for, or extend them; again: nothing changes."""
    connection.executemany(
        f"{_ADD}sold = 1, expires_us = max(expires_us, excluded.expires_us)",
        [(chain, each.account, each.owner, first, 1, each.expires_us) for each in places],
    )


def add_synced(
    connection: apsw.Connection, chain: str, first: int, owner: str, accounts: Iterable[str], terms: PlaceTerms
) -> list[str]:
    """Add places that are not sold, or extend them, as far as there is room for new ones; remove those that ended.

    Returns:
        The accounts for which there was no room.
    """
    connection.execute("DELETE FROM watches WHERE chain = ? AND expires_us <= ?", (chain, terms.now_us))
    rows: list[Any] = connection.execute(
        "SELECT owner, account, sold FROM watches WHERE chain = ? AND owner <> ''", (chain,)
    ).fetchall()
    own = {account: sold for holder, account, sold in rows if holder == owner}
    count, own_count = sum(not sold for _, _, sold in rows), sum(not sold for sold in own.values())
    room = max(0, min(terms.most - count, terms.most_of_owner - own_count))
    distinct = list(dict.fromkeys(accounts))
    new = [each for each in distinct if each not in own]
    connection.executemany(
        f"{_ADD}expires_us = max(expires_us, excluded.expires_us) WHERE sold = 0",
        [(chain, each, owner, first, 0, terms.expires_us) for each in distinct if each in own or each in new[:room]],
    )
    return new[room:]
