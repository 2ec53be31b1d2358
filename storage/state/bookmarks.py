"""Bookmarks: the last item of a page of a list, from which the next page continues in any process.

A bookmark belongs to an account, a request without its page, and a position: the number of items before it. The next
page starts after that item, even if new items moved it.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from chainfolio.storage.state import schema
from chainfolio.storage.state.database import Statement, Transaction, argument, literal, only_row

KEEP_US: Final = 15 * 60 * 1_000_000
SLICE: Final = 500

_TABLE = schema.bookmarks
_LIST = sa.and_(_TABLE.c.account_id == argument("owner"), _TABLE.c.question == argument("asked"))
# The bookmark of that position, else the newest one before it, for requests that skip pages.
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
    """Return position and cursor of the bookmark at a position, else of the newest one before it.

    None if there is none that is younger than KEEP_US.
    """
    row = only_row(tx.rows(_FIND, owner=account_id, asked=question, reached=position, since=now_us - KEEP_US))
    return None if row is None else (row[0], bytes(row[1]))


def put(tx: Transaction, account_id: str, question: bytes, position: int, cursor: bytes, now_us: int) -> None:
    """Store the cursor of a position, replacing an earlier one."""
    tx.run(_DROP, owner=account_id, asked=question, reached=position)
    tx.run(_PUT, account_id=account_id, question=question, position=position, place=cursor, at_us=now_us)


def drop_expired(tx: Transaction, now_us: int) -> bool:
    """Delete some expired bookmarks. Return True if there may be more."""
    oldest = tx.rows(_OLDEST, before=now_us - KEEP_US, most=SLICE)
    tx.run_many(_DROP, oldest)
    return len(oldest) == SLICE
