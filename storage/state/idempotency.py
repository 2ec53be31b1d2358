"""Answers by `Idempotency-Key`: whoever asks the same again is told the same again, and pays once.

A key is claimed and its answer is kept in the transaction that makes the change, so a claim is never seen by others:
either the change was made, paid and remembered, or the key is free. Who asks at the same moment waits for that
transaction to end, and is then told what it was answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from storage.state import schema
from storage.state.database import Statement, Transaction, argument, one

KEEP_US: Final = 24 * 3600 * 1_000_000
SLICE: Final = 500

_TABLE = schema.idempotency
_HERE = sa.and_(_TABLE.c.account_id == argument("owner"), _TABLE.c.name == argument("key"))
_FIND = Statement(
    sa.select(
        _TABLE.c.fingerprint,
        _TABLE.c.claimed_us,
        _TABLE.c.status,
        _TABLE.c.content_type,
        _TABLE.c.body,
        _TABLE.c.digest,
    ).where(_HERE)
)
_CLAIM = Statement(_TABLE.insert(), ["account_id", "name", "fingerprint", "claimed_us"])
_KEEP = Statement(
    _TABLE.update()
    .where(_HERE)
    .values(
        status=argument("new_status"),
        content_type=argument("new_type"),
        body=argument("new_body"),
        digest=argument("new_digest"),
    )
)
# What another transaction has just kept stays: a look and a deletion are two moments.
_DROP_OLD = Statement(
    _TABLE.delete().where(_HERE, sa.or_(_TABLE.c.claimed_us <= argument("before"), _TABLE.c.status.is_(None)))
)
_DROP = Statement(_TABLE.delete().where(_HERE))
_OLDEST = Statement(
    sa.select(_TABLE.c.account_id, _TABLE.c.name)
    .where(_TABLE.c.claimed_us < argument("before"))
    .order_by(_TABLE.c.claimed_us)
    .suffix_with(sa.text("LIMIT :most"))
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that carries a key. Requests of one fingerprint are the same request."""

    account_id: str
    name: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """What was answered the first time. A long body that can be made again is kept as its digest alone."""

    status: int
    content_type: str
    body: bytes | None
    digest: bytes | None = None


class Reused(Exception):
    """The key was used for another request."""


def find(tx: Transaction, asked: Asked) -> Kept | None:
    """What was answered to the request before; Reused where its key belongs to another one."""
    row = one(tx.rows(_FIND, owner=asked.account_id, key=asked.name))
    if row is None:
        return None
    known, claimed_us, status, content_type, body, digest = row
    if status is None or tx.now_us() - claimed_us >= KEEP_US:  # earlier releases left claims without an answer
        return None
    if bytes(known) != asked.fingerprint:
        raise Reused(asked.name)
    return Kept(status, content_type, None if body is None else bytes(body), None if digest is None else bytes(digest))


def claim(tx: Transaction, asked: Asked) -> Kept | None:
    """What was answered before; else None, and this transaction is the one that answers: `keep` is due before it ends.

    UniqueViolation where another transaction has answered meanwhile: then `claim` in a new transaction finds what.
    """
    found = find(tx, asked)
    if found is None:
        now_us = tx.now_us()
        tx.run(_DROP_OLD, owner=asked.account_id, key=asked.name, before=now_us - KEEP_US)
        tx.run(
            _CLAIM, account_id=asked.account_id, name=asked.name, fingerprint=asked.fingerprint, claimed_us=now_us
        )  # fmt: skip
    return found


def keep(tx: Transaction, asked: Asked, answer: Kept) -> None:
    """Keep the answer to what this transaction has claimed."""
    changed = tx.run(
        _KEEP, owner=asked.account_id, key=asked.name, new_status=answer.status, new_type=answer.content_type,
        new_body=answer.body, new_digest=answer.digest,
    )  # fmt: skip
    assert changed == 1, "claimed before, in the same transaction"


def forget(tx: Transaction) -> bool:
    """Drop some of what nobody will ask for again; whether there may be more."""
    oldest = tx.rows(_OLDEST, before=tx.now_us() - KEEP_US, most=SLICE)
    tx.many(_DROP, oldest)
    return len(oldest) == SLICE
