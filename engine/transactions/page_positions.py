"""Positions in a list of transactions whose newest blocks may still be replaced.

A reorganisation can move a transaction across the end of a page. A position therefore also names the rows of
replaceable blocks: those that were shown, and those behind the page. The next page shows the pending rows wherever they
stand then, and no row that was shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from chainfolio.engine.results import ListPosition

if TYPE_CHECKING:
    from chainfolio.portfolio.activity import Activity

MAX_NAMES: Final = 2_000  # rows that a position names as shown, and as pending: those nearest to its end
NAME_BYTES: Final = 8


def position_after(
    count: int,
    last: Activity,
    keys: Sequence[Activity],
    is_replaceable: Callable[[Activity], bool],
    start: ListPosition | None = None,
) -> ListPosition:
    """Return the position behind `last`, one of `keys`, which are the unread keys at `start`.

    Args:
        count: Number of records of the whole list up to `last`.
        is_replaceable: Returns True for rows of blocks that may still leave the chain.
        start: The position at which the page began; None at the beginning of the list.
    """
    end = next(number for number, key in enumerate(keys) if key.sort_key == last.sort_key) + 1
    shown = [name(key) for key in reversed(keys[:end]) if is_replaceable(key)]
    if start is not None:
        shown += start.shown
    pending = [name(key) for key in keys[end:] if is_replaceable(key)]
    return ListPosition(count, last.sort_key, frozenset(shown[:MAX_NAMES]), frozenset(pending[:MAX_NAMES]))


def remaining(keys: Sequence[Activity], after: ListPosition, newest_first: bool) -> list[Activity]:
    """Return the part of the list `keys` behind `after`, in the list's order.

    Rows that a reorganisation moved before the position come first if they were not shown. Shown rows are left out.
    """
    start = _read_count(keys, after, newest_first)
    displaced = _select(keys[:start], after.pending) if after.pending else []
    unread = [key for key in keys[start:] if name(key) not in after.shown] if after.shown else list(keys[start:])
    return displaced + unread


def name(key: Activity) -> bytes:
    """Return a short name of a row that does not depend on its block."""
    text = f"{key.chain} {key.account} {key.tx_hash}"
    return hashlib.blake2b(text.encode(), digest_size=NAME_BYTES).digest()


def _select(keys: Sequence[Activity], names: Collection[bytes]) -> list[Activity]:
    return [key for key in keys if name(key) in names]


def _read_count(keys: Sequence[Activity], after: ListPosition, newest_first: bool) -> int:
    """Return the number of keys up to the position.

    If a reorganisation moved the last row to another block, its new place counts; if the row is gone, its old place.
    """
    row_id = after.place[3:]
    for number, key in enumerate(keys):
        if (key.tx_hash, key.chain, key.account) == row_id:
            return number + 1
    flags = (key.sort_key < after.place if newest_first else key.sort_key > after.place for key in keys)
    return next((number for number, is_behind in enumerate(flags) if is_behind), len(keys))
