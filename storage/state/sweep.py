"""Release expired reservations, and delete expired idempotency keys and bookmarks.

Each slice is a short transaction, because other transactions wait for the store's lock. Each row of the ledger is read
once: all rows up to the mark are settled.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from chainfolio.storage.state import bookmarks, idempotency, ledger, schema
from chainfolio.storage.state.database import Statement, Transaction, argument, literal, only_row

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


def sweep_slice(tx: Transaction, at_us: int, hold_us: int) -> bool:
    """Process one slice of each table. Return True if there is more to do.

    Args:
        at_us: Time of new ledger rows.
        hold_us: Age at which a reservation expires.
    """
    _, has_more = expire(tx, at_us, hold_us)
    return any([has_more, idempotency.drop_expired(tx), bookmarks.drop_expired(tx, at_us)])


def expire(tx: Transaction, at_us: int, hold_us: int, max_rows: int = SLICE) -> tuple[int, bool]:
    """Release reservations that are older than `hold_us` by the store's time and not settled.

    Calls that still run have renewed theirs. The mark stays below younger reservations and below rows of the last
    minute, because a row with a smaller number may not be committed yet.

    Args:
        at_us: Time of the new ledger rows.
        max_rows: Number of ledger rows to read.

    Returns:
        The number of released reservations, and True if there are more rows to read.
    """
    row = only_row(tx.rows(_MARK))
    assert row is not None, "the mark is made with the tables"
    mark: int = row[0]
    ((last, row_count),) = tx.rows(_END, mark=mark, most=max_rows)
    if last is None:
        return 0, False
    late = call_id(tx.now_us() - hold_us, 2**PROCESS_BITS - 1)
    ((young,),) = tx.rows(_YOUNG, mark=mark, last=last, late=late, recent=at_us - min(hold_us, GRACE_US), now=at_us)
    if young is not None:
        last = young - 1
    if last == mark:
        return 0, False
    expired = _release(tx, tx.rows(_OPEN, mark=mark, last=last), at_us)
    tx.run(_SET_MARK, new_value=last)
    return expired, young is None and row_count == max_rows


def _release(tx: Transaction, calls: list[tuple[str, int, int]], at_us: int) -> int:
    """Release expired reservations; return how many, without those settled meanwhile."""
    balances = ledger.balances(tx, {account_id for account_id, *_ in calls})
    expired = 0
    for account_id, call, amount in calls:
        # One at a time: another transaction may have settled it meanwhile.
        if ledger.settle(tx, [ledger.entry(account_id, at_us, "expire", amount, call, "")]):
            balances[account_id].move("expire", amount)
            expired += 1
    ledger.store_balances(tx, balances)
    return expired


def call_id(at_us: int, process: int) -> int:
    """Return the id of a call that starts at a store time; `process` distinguishes processes."""
    return (at_us - EPOCH_US) << PROCESS_BITS | process
