"""Rows of accounts that are read often, kept in memory by the file in which they are.

Files never change. A file that a merge, a rewind or a repair replaced is no longer listed, so its rows are not asked
for again, and are dropped as the least used.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence

import numpy as np
import pyarrow as pa

MAX_ROWS = 200_000
MAX_BYTES = 96 * 2**20
MAX_RECENT = 50_000  # accounts and tables whose last read is remembered
MAX_TOGETHER = 64  # a read of more accounts is a job over all, and says nothing about the next read


class KeptRows:
    """Cache of rows, bounded in rows and in bytes. Safe to use from several threads.

    An account without rows in a file counts as one row. Rows that would take more than a tenth of the bound alone are
    not kept.
    """

    def __init__(self, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES, max_recent: int = MAX_RECENT) -> None:
        """Begin empty; the `max_recent` keys that were asked for last are remembered."""
        self.row_count = self.byte_count = 0
        self._max_rows, self._max_bytes, self._max_recent = max_rows, max_bytes, max_recent
        self._rows: OrderedDict[Hashable, pa.Table] = OrderedDict()
        self._recent: OrderedDict[Hashable, None] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def recent_count(self) -> int:
        """Number of remembered reads."""
        return len(self._recent)

    def often_read(self, group: Hashable, accounts: Sequence[Hashable]) -> set[Hashable]:
        """Return the accounts that were read before from a group of rows, and remember this read.

        Reads of more than MAX_TOGETHER accounts give an empty set, and are not remembered.
        """
        if len(accounts) > MAX_TOGETHER:
            return set()
        often = set[Hashable]()
        with self._lock:
            for account in accounts:
                if (group, account) in self._recent:
                    often.add(account)
                self._recent[group, account] = None
                self._recent.move_to_end((group, account))
            while len(self._recent) > self._max_recent:
                self._recent.popitem(last=False)
        return often

    def get(self, key: Hashable) -> pa.Table | None:
        """Return kept rows; None if they are not kept."""
        with self._lock:
            if key in self._rows:
                self._rows.move_to_end(key)
            return self._rows.get(key)

    def put(self, key: Hashable, rows: pa.Table) -> None:
        """Keep a copy of rows, unless they exceed a tenth of a bound; drop others beyond the bounds."""
        copied = rows.take(np.arange(rows.num_rows))  # a slice would keep its whole row group
        size = max(1, copied.num_rows), copied.nbytes
        if size[0] * 10 > self._max_rows or size[1] * 10 > self._max_bytes:
            return
        with self._lock:
            self._drop(key)
            self._rows[key] = copied
            self.row_count += size[0]
            self.byte_count += size[1]
            while self.row_count > self._max_rows or self.byte_count > self._max_bytes:
                self._drop(next(iter(self._rows)))

    def _drop(self, key: Hashable) -> None:
        rows = self._rows.pop(key, None)
        if rows is not None:
            self.row_count -= max(1, rows.num_rows)
            self.byte_count -= rows.nbytes
