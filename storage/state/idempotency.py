"""Answers by `Idempotency-Key`: whoever asks the same again is told the same again, and pays once.

A key is claimed before the work and its answer is kept in the transaction of the work itself, so that there is no
moment in which the one is done and the other is not. A claim whose process died is free again after `stale_us`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import sqlalchemy as sa

from storage.state import schema
from storage.state.database import Statement, Transaction, argument, one

KEEP_US: Final = 24 * 3600 * 1_000_000

_TABLE = schema.idempotency
_HERE = sa.and_(_TABLE.c.account_id == argument("owner"), _TABLE.c.name == argument("key"))
_FIND = Statement(
    sa.select(_TABLE.c.fingerprint, _TABLE.c.claimed_us, _TABLE.c.status, _TABLE.c.content_type, _TABLE.c.body)
    .where(_HERE)
    .with_for_update()
)
_CLAIM = Statement(_TABLE.insert(), ["account_id", "name", "fingerprint", "claimed_us"])
_KEEP = Statement(
    _TABLE.update()
    .where(_HERE, _TABLE.c.claimed_us == argument("claimed"), _TABLE.c.status.is_(None))
    .values(status=argument("new_status"), content_type=argument("new_type"), body=argument("new_body"))
)
_FREE = Statement(_TABLE.delete().where(_HERE, _TABLE.c.claimed_us == argument("claimed"), _TABLE.c.status.is_(None)))
_DROP = Statement(_TABLE.delete().where(_HERE))
_FORGET = Statement(_TABLE.delete().where(_TABLE.c.claimed_us < argument("before")))


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to do what one key asks for, once."""

    account_id: str
    name: str
    claimed_us: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What was answered the first time."""

    status: int
    content_type: str
    body: bytes


class Lost(Exception):
    """The claim is no longer ours: whatever was done for it is undone."""


def claim(
    tx: Transaction, account_id: str, name: str, fingerprint: bytes, now_us: int, stale_us: int
) -> Claim | Kept | Literal["running", "another"]:
    """The claim; or what was answered before; `running` where it still runs, `another` where the request differs."""
    row = one(tx.rows(_FIND, owner=account_id, key=name))
    if row is not None:
        known, claimed_us, status, content_type, body = row
        fresh = now_us - claimed_us < (stale_us if status is None else KEEP_US)
        if fresh and bytes(known) != fingerprint:
            return "another"
        if fresh:
            return "running" if status is None else Kept(status, content_type, bytes(body))
        tx.run(_DROP, owner=account_id, key=name)
    tx.run(_CLAIM, account_id=account_id, name=name, fingerprint=fingerprint, claimed_us=now_us)
    return Claim(account_id, name, now_us)


def keep(tx: Transaction, claimed: Claim, answer: Kept) -> None:
    """Keep the answer to a claim; Lost, and nothing of the transaction is done, where it is not ours any more."""
    changed = tx.run(
        _KEEP, owner=claimed.account_id, key=claimed.name, claimed=claimed.claimed_us, new_status=answer.status,
        new_type=answer.content_type, new_body=answer.body,
    )  # fmt: skip
    if not changed:
        raise Lost(claimed.name)


def free(tx: Transaction, claimed: Claim) -> None:
    """Give a claim back that came to no answer worth keeping."""
    tx.run(_FREE, owner=claimed.account_id, key=claimed.name, claimed=claimed.claimed_us)


def forget(tx: Transaction, now_us: int) -> int:
    """Drop what nobody will ask for again; how many."""
    return tx.run(_FORGET, before=now_us - KEEP_US)
