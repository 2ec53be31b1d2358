"""Bookmarks: where a page of a list ended, for the one that follows it, in whichever process that is asked.

A bookmark is of one account, one question and one position: how many items came before. Whoever asks the same from
there goes on after the item that was the last one then, wherever that stands by now.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from storage.state import schema
from storage.state.database import Statement, Transaction, argument, literal, one

KEEP_US: Final = 15 * 60 * 1_000_000
SLICE: Final = 500

_TABLE = schema.bookmarks
_LIST = sa.and_(_TABLE.c.account_id == argument("owner"), _TABLE.c.question == argument("asked"))
# The one of exactly that position; else the newest of those before it, for whoever jumps.
_FIND = Statement(
    sa.select(_TABLE.c.position, _TABLE.c.place)
    .where(_LIST, _TABLE.c.position <= argument("reached"), _TABLE.c.at_us >= argument("since"))
    .order_by((_TABLE.c.position == argument("reached")).desc(), _TABLE.c.at_us.desc(), _TABLE.c.position.desc())
    .limit(literal(1))
    .offset(literal(0))
)
_DROP = Statement(_TABLE.delete().where(_LIST, _TABLE.c.position == argument("reached")))
_PUT = Statement(_TABLE.insert())
_OLDEST = Statement(
    sa.select(_TABLE.c.account_id, _TABLE.c.question, _TABLE.c.position)
    .where(_TABLE.c.at_us < argument("before"))
    .order_by(_TABLE.c.at_us)
    .suffix_with(sa.text("LIMIT :most"))
)


def find(tx: Transaction, account_id: str, question: bytes, position: int, now_us: int) -> tuple[int, bytes] | None:
    """The place that was kept at a position of a list, else the newest kept before it, with its own position."""
    row = one(tx.rows(_FIND, owner=account_id, asked=question, reached=position, since=now_us - KEEP_US))
    return None if row is None else (row[0], bytes(row[1]))


def put(tx: Transaction, account_id: str, question: bytes, position: int, place: bytes, now_us: int) -> None:
    """Keep a place, instead of the one that was kept at that position."""
    tx.run(_DROP, owner=account_id, asked=question, reached=position)
    tx.run(_PUT, account_id=account_id, question=question, position=position, place=place, at_us=now_us)


def forget(tx: Transaction, now_us: int) -> bool:
    """Drop some of those that nobody goes on from; whether there may be more."""
    oldest = tx.rows(_OLDEST, before=now_us - KEEP_US, most=SLICE)
    tx.many(_DROP, oldest)
    return len(oldest) == SLICE
