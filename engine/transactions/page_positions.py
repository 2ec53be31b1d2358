"""Positions in a list of transactions whose newest blocks may still be replaced.

A reorganisation can move a transaction from behind the end of a page to before it, or the other way. A position
therefore also names the rows of blocks that may still be replaced: those that were shown, and those that were still to
come. The next page shows what was to come wherever it stands by then, and nothing that was shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from chainfolio.portfolio.activity import Activity

MAX_NAMED: Final = 2_000  # rows that a position names, of each sort: those nearest to its end
NAME_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a list of transactions was read.

    `count` is the number of records, `place` where the last of them stood (time in microseconds, height, position in
    the block, hash, chain, account). `shown` and `pending` are names of rows in blocks that could still be replaced:
    those that were read before, and those behind them.
    """

    count: int
    place: tuple[int, int, int, str, str, str]
    shown: frozenset[bytes] = frozenset()
    pending: frozenset[bytes] = frozenset()


def reached(
    count: int,
    last: Activity,
    keys: Sequence[Activity],
    is_replaceable: Callable[[Activity], bool],
    before: Reached | None = None,
) -> Reached:
    """Return the position behind `last`, one of `keys`, which are what was left of the list at `before`.

    Args:
        count: records that were read of the whole list.
        is_replaceable: returns True for rows of blocks that may still leave the chain.
        before: the position that the page began at; None at the beginning of the list.
    """
    end = next(number for number, key in enumerate(keys) if key.sort_key == last.sort_key) + 1
    shown = [name(key) for key in reversed(keys[:end]) if is_replaceable(key)]
    if before is not None:
        shown += before.shown
    pending = [name(key) for key in keys[end:] if is_replaceable(key)]
    return Reached(count, last.sort_key, frozenset(shown[:MAX_NAMED]), frozenset(pending[:MAX_NAMED]))


def remaining(keys: Sequence[Activity], after: Reached, newest_first: bool) -> list[Activity]:
    """Return what a reader who is at `after` has not read of the list `keys`, in its order."""
    start = _passed(keys, after, newest_first)
    moved = _named(keys[:start], after.pending) if after.pending else []
    rest = [key for key in keys[start:] if name(key) not in after.shown] if after.shown else list(keys[start:])
    return moved + rest


def name(key: Activity) -> bytes:
    """Return a short name of a row, which stays the same in whichever block the row stands."""
    text = f"{key.chain} {key.account} {key.tx_hash}"
    return hashlib.blake2b(text.encode(), digest_size=NAME_BYTES).digest()


def _named(keys: Sequence[Activity], names: Collection[bytes]) -> list[Activity]:
    return [key for key in keys if name(key) in names]


def _passed(keys: Sequence[Activity], after: Reached, newest_first: bool) -> int:
    """Return how many keys of the list were read before. If a reorganisation gave the last of them another block, it
    counts where it stands now; if it is gone, where it stood."""
    last = after.place[3:]
    for number, key in enumerate(keys):
        if (key.tx_hash, key.chain, key.account) == last:
            return number + 1
    behind = (key.sort_key < after.place if newest_first else key.sort_key > after.place for key in keys)
    return next((number for number, is_behind in enumerate(behind) if is_behind), len(keys))
