"""The fingerprint of the secret under which API keys are hashed, to detect a wrong secret.

It is 63 bits of an HMAC of a fixed text, which reveal nothing about the secret. It is stored with the first account.
"""

from __future__ import annotations

import sqlalchemy as sa

from chainfolio.storage.state import schema
from chainfolio.storage.state.credentials import digest
from chainfolio.storage.state.database import (
    Database,
    Statement,
    Transaction,
    UniqueViolation,
    argument,
    literal,
    only_row,
)

_MARKS = schema.marks
_FIND = Statement(sa.select(_MARKS.c.value).where(_MARKS.c.name == literal("secret")))
_ADD = Statement(_MARKS.insert())
_SET = Statement(_MARKS.update().where(_MARKS.c.name == literal("secret")).values(value=argument("new_value")))


def is_own(database: Database, pepper: bytes) -> bool:
    """Return True if the store's keys are hashed under this secret. The first call stores its fingerprint."""
    mark = _mark(pepper)
    try:
        return database.read(_stored_mark) == mark or database.write(lambda tx: _store_if_first(tx, mark)) == mark
    except UniqueViolation:  # another process has just stored one
        return database.read(_stored_mark) == mark


def accept(database: Database, pepper: bytes) -> None:
    """Store the fingerprint of another secret. Keys that were hashed under the old one stop working."""
    mark = _mark(pepper)

    def work(tx: Transaction) -> None:
        if not tx.run(_SET, new_value=mark):
            tx.run(_ADD, name="secret", value=mark)

    database.write(work)


def _store_if_first(tx: Transaction, mark: int) -> int:
    stored = _stored_mark(tx)
    if stored is None:
        tx.run(_ADD, name="secret", value=mark)
    return mark if stored is None else stored


def _stored_mark(tx: Transaction) -> int | None:
    row = only_row(tx.rows(_FIND))
    return None if row is None else int(row[0])


def _mark(pepper: bytes) -> int:
    return int.from_bytes(digest(pepper, "mark of the secret")[:8], "big") >> 1
