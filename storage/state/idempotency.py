"""Responses by `Idempotency-Key`: a repeated request gets the stored response and is not paid twice.

A key is claimed and its response stored in the transaction of the change. So a change is either made, paid and stored,
or its key is free. A concurrent request with the key waits for that transaction, and gets its response.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from chainfolio.storage.state import schema
from chainfolio.storage.state.database import Statement, Transaction, argument, only_row

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
# A response that another transaction stored after the read is not deleted.
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
_FIRST = Statement(sa.select(sa.func.min(_TABLE.c.claimed_us)))


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with a key. Requests with one fingerprint are equal."""

    account_id: str
    name: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A stored response. `body` is None if only its digest is stored, for long ones that can be remade."""

    status: int
    content_type: str
    body: bytes | None
    digest: bytes | None = None


class KeyReused(Exception):
    """The key was used for another request."""


def find(tx: Transaction, request: KeyedRequest) -> StoredResponse | None:
    """Return the stored response to an earlier request with this key.

    None if there is none, or it is too old.

    Raises:
        KeyReused: The key belongs to another request.
    """
    row = only_row(tx.rows(_FIND, owner=request.account_id, key=request.name))
    if row is None:
        return None
    fingerprint, claimed_us, status, content_type, body, digest = row
    if tx.now_us() - claimed_us >= KEEP_US:
        return None
    if bytes(fingerprint) != request.fingerprint:
        raise KeyReused(request.name)
    return StoredResponse(
        status, content_type, None if body is None else bytes(body), None if digest is None else bytes(digest)
    )


def claim(tx: Transaction, request: KeyedRequest) -> StoredResponse | None:
    """Return the stored response; None if this transaction now owns the key.

    In that case it must call `store_response`.

    Raises:
        KeyReused: The key belongs to another request.
        UniqueViolation: Another transaction stored a response meanwhile: call again in a new transaction.
    """
    response = find(tx, request)
    if response is None:
        now_us = tx.now_us()
        tx.run(_DROP_OLD, owner=request.account_id, key=request.name, before=now_us - KEEP_US)
        tx.run(
            _CLAIM, account_id=request.account_id, name=request.name, fingerprint=request.fingerprint, claimed_us=now_us
        )
    return response


def store_response(tx: Transaction, request: KeyedRequest, answer: StoredResponse) -> None:
    """Store the response for a key that this transaction has claimed."""
    changed = tx.run(
        _KEEP,
        owner=request.account_id,
        key=request.name,
        new_status=answer.status,
        new_type=answer.content_type,
        new_body=answer.body,
        new_digest=answer.digest,
    )
    assert changed == 1, "claimed before, in the same transaction"


def oldest_age_us(tx: Transaction) -> int:
    """Return the age of the oldest stored response; 0 if none is stored."""
    ((claimed_us,),) = tx.rows(_FIRST)
    return 0 if claimed_us is None else max(0, tx.now_us() - int(claimed_us))


def drop_expired(tx: Transaction) -> bool:
    """Delete some expired responses. Return True if there may be more."""
    oldest = tx.rows(_OLDEST, before=tx.now_us() - KEEP_US, most=SLICE)
    tx.run_many(_DROP, oldest)
    return len(oldest) == SLICE
