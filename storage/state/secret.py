"""The mark of the secret under which keys are hashed: another secret is recognised before it refuses every key.

63 bits of an HMAC of a fixed text tell secrets apart and tell nobody the secret. The mark is remembered with the first
account, and by stores of older releases when they are next opened.
"""

from __future__ import annotations

import sqlalchemy as sa

from storage.state import schema
from storage.state.credentials import digest
from storage.state.database import Database, Statement, Transaction, UniqueViolation, argument, literal, one

_MARKS = schema.marks
_FIND = Statement(sa.select(_MARKS.c.value).where(_MARKS.c.name == literal("secret")))
_ADD = Statement(_MARKS.insert())
_SET = Statement(_MARKS.update().where(_MARKS.c.name == literal("secret")).values(value=argument("new_value")))


def is_own(database: Database, pepper: bytes) -> bool:
    """Whether the keys of a store are hashed under this secret. The first secret that is asked for is remembered."""
    mark = _mark(pepper)
    try:
        return database.look(_found) == mark or database.change(lambda tx: _remembered(tx, mark)) == mark
    except UniqueViolation:  # another process has just remembered one
        return database.look(_found) == mark


def accept(database: Database, pepper: bytes) -> None:
    """Go on with this secret: keys that were hashed under another one stay without use."""
    mark = _mark(pepper)

    def work(tx: Transaction) -> None:
        if not tx.run(_SET, new_value=mark):
            tx.run(_ADD, name="secret", value=mark)

    database.change(work)


def _remembered(tx: Transaction, mark: int) -> int:
    found = _found(tx)
    if found is None:
        tx.run(_ADD, name="secret", value=mark)
    return mark if found is None else found


def _found(tx: Transaction) -> int | None:
    row = one(tx.rows(_FIND))
    return None if row is None else int(row[0])


def _mark(pepper: bytes) -> int:
    return int.from_bytes(digest(pepper, "mark of the secret")[:8], "big") >> 1
