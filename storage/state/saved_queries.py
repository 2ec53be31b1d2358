"""Saved queries of accounts. Call changes in a transaction in which the account is locked."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from chainfolio.errors import BadRequest, NotFound
from chainfolio.storage.state import schema
from chainfolio.storage.state.database import Statement, Transaction, argument, only_row


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """A query with its name, and when it was saved in microseconds."""

    name: str
    query: str
    saved_us: int


_QUERIES = schema.saved_queries
_COLUMNS = [_QUERIES.c[name] for name in SavedQuery.__slots__]
_OF = Statement(sa.select(*_COLUMNS).where(_QUERIES.c.account_id == argument("owner")))
_ONE = Statement(
    sa.select(*_COLUMNS).where(_QUERIES.c.account_id == argument("owner"), _QUERIES.c.name == argument("title"))
)
_ADD = Statement(_QUERIES.insert())
_DROP = Statement(
    _QUERIES.delete().where(_QUERIES.c.account_id == argument("owner"), _QUERIES.c.name == argument("title"))
)


def every(tx: Transaction, account_id: str) -> list[SavedQuery]:
    """Return the queries of an account, sorted by name."""
    return sorted((SavedQuery(*row) for row in tx.rows(_OF, owner=account_id)), key=lambda each: each.name)


def one(tx: Transaction, account_id: str, name: str) -> SavedQuery:
    """Return a query of an account.

    Raises:
        NotFound: The account has no query of this name.
    """
    row = only_row(tx.rows(_ONE, owner=account_id, title=name))
    if row is None:
        raise NotFound(f"there is no saved query {name}")
    return SavedQuery(*row)


def save(tx: Transaction, account_id: str, new: SavedQuery, max_saved: int) -> None:
    """Store a query, in place of that of the same name.

    Raises:
        BadRequest: The account has `max_saved` queries of other names.
    """
    if not tx.run(_DROP, owner=account_id, title=new.name) and len(tx.rows(_OF, owner=account_id)) >= max_saved:
        raise BadRequest("name", f"an account has at most {max_saved} saved queries", remedy="remove one")
    tx.run(_ADD, account_id=account_id, name=new.name, query=new.query, saved_us=new.saved_us)


def remove(tx: Transaction, account_id: str, name: str) -> None:
    """Delete a query.

    Raises:
        NotFound: The account has no query of this name.
    """
    if not tx.run(_DROP, owner=account_id, title=name):
        raise NotFound(f"there is no saved query {name}")
