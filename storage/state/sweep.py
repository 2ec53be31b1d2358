"""What the sweep does: gives back what the dead have reserved, and forgets what nobody will ask for again.

It works in slices, each a short transaction, because others wait while it holds the store's lock. Every row of the
ledger is looked at once: everything up to a mark is settled.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from storage.state import bookmarks, idempotency, ledger, schema
from storage.state.database import Statement, Transaction, argument, literal, one

SLICE: Final = 2000  # rows of the ledger, about 5 ms
GRACE_US: Final = 60_000_000  # longer than any transaction lasts
EPOCH_US: Final = 1_735_689_600_000_000  # 2025-01-01: the ids of calls fit 63 bits for 17 years
PROCESS_BITS: Final = 14

_MARKS, _LEDGER = schema.marks, schema.ledger
_MARK = Statement(sa.select(_MARKS.c.value).where(_MARKS.c.name == literal("settled")).with_for_update())
_SET_MARK = Statement(_MARKS.update().where(_MARKS.c.name == literal("settled")).values(value=argument("new_value")))
_END = Statement(
    sa.text("SELECT max(id), count(*) FROM (SELECT id FROM ledger WHERE id > :mark ORDER BY id LIMIT :most) part")
)
_YOUNG = Statement(
    sa.text(
        "SELECT min(id) FROM ledger WHERE id > :mark AND id <= :last "
        "AND ((kind = 'reserve' AND call_id > :late) OR (at_us > :recent AND at_us <= :now))"
    )
)
_OPEN = Statement(
    sa.select(_LEDGER.c.account_id, _LEDGER.c.call_id, _LEDGER.c.amount)
    .where(_LEDGER.c.id > argument("mark"), _LEDGER.c.id <= argument("last"), ledger.OPEN)
    .order_by(_LEDGER.c.id)
)


def swept(tx: Transaction, at_us: int, hold_us: int) -> bool:
    """One slice of everything; whether there is more to do. `at_us` is the moment for the rows of the ledger."""
    _, more = expire(tx, at_us, hold_us)
    return any([more, idempotency.forget(tx), bookmarks.forget(tx, at_us)])


def expire(tx: Transaction, at_us: int, hold_us: int, most: int = SLICE) -> tuple[int, bool]:
    """Give back what was reserved `hold_us` ago, by the store's time, and is not settled: how many calls, and whether
    there are more rows to look at. Calls that still run have renewed theirs.

    The mark stays before what is younger, and before rows of the last minute: one with a smaller number may still be
    on its way into the ledger.
    """
    row = one(tx.rows(_MARK))
    assert row is not None, "the mark is made with the tables"
    mark: int = row[0]
    ((last, found),) = tx.rows(_END, mark=mark, most=most)
    if last is None:
        return 0, False
    late = call_id(tx.now_us() - hold_us, 2**PROCESS_BITS - 1)
    ((young,),) = tx.rows(
        _YOUNG, mark=mark, last=last, late=late, recent=at_us - min(hold_us, GRACE_US), now=at_us
    )  # fmt: skip
    if young is not None:
        last = young - 1
    if last == mark:
        return 0, False
    expired = _given_back(tx, tx.rows(_OPEN, mark=mark, last=last), at_us)
    tx.run(_SET_MARK, new_value=last)
    return expired, young is None and found == most


def _given_back(tx: Transaction, calls: list[tuple[str, int, int]], at_us: int) -> int:
    balances = ledger.balances(tx, {account_id for account_id, *_ in calls})
    expired = 0
    for account_id, call, amount in calls:
        # One by one: whoever has settled it in this moment was first.
        if tx.many(ledger.SETTLE, [ledger.entry(account_id, at_us, "expire", amount, call, "")]):
            balances[account_id].move("expire", amount)
            expired += 1
    ledger.keep(tx, balances)
    return expired


def call_id(at_us: int, process: int) -> int:
    """The id of a call that began at a moment of the store's time; each process has a number of its own."""
    return (at_us - EPOCH_US) << PROCESS_BITS | process
