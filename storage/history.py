"""Rows of accounts out of their bucket's files: only the row groups that have some are read.

The files of a bucket are sorted by account, and their footers say where each row group begins and ends. A file never
changes, so a footer that was read once stays right for as long as any version of the table names its file.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chainfolio.errors import Damaged
from chainfolio.table import Table
from storage.parquet import Bucket, Folder, Written, completed, footer_of, opened

# As they lie in the files; in memory a footer takes about twelve times as much.
FOOTER_BYTES = 4 * 2**20
PREFETCH_AFTER = 2


class Footers:
    """The footers that were asked for last, at most so many bytes of them. Safe to use from several threads."""

    def __init__(self, limit: int = FOOTER_BYTES) -> None:
        self.size = 0
        self._limit = limit
        self._kept: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._lock = threading.Lock()
        self._asked = 0

    def of(self, path: str, folder: Folder | Bucket) -> pq.FileMetaData:
        """The footer of a file, kept or read now."""
        with self._lock:
            if path in self._kept:
                self._kept.move_to_end(path)
                return self._kept[path]
        footer = footer_of(folder, path)
        with self._lock:
            self._keep(path, footer)
            while self.size > self._limit:
                _, oldest = self._kept.popitem(last=False)
                self.size -= oldest.serialized_size
        return footer

    def prefetch(self, all_of: Callable[[], tuple[Sequence[Written], Folder | Bucket]]) -> None:
        """From the second look-up on, have the footers of other files too, as long as there is room: who asks for two
        accounts asks for more. They are read beside what goes on, and once."""
        with self._lock:
            self._asked += 1
            if self._asked != PREFETCH_AFTER:
                return
        threading.Thread(target=self._fill, args=all_of(), name="footers", daemon=True).start()

    def _fill(self, files: Sequence[Written], folder: Folder | Bucket) -> None:
        with suppress(OSError, pa.ArrowException, Damaged):  # who needs that file is told
            for file in files:
                footer = footer_of(folder, file.path)
                with self._lock:
                    if self.size + footer.serialized_size > self._limit:
                        return
                    self._keep(file.path, footer)

    def _keep(self, path: str, footer: pq.FileMetaData) -> None:
        if path not in self._kept:
            self._kept[path] = footer
            self.size += footer.serialized_size


def history(
    table: Table,
    files: Iterable[Written],
    accounts: Sequence[Any],
    columns: Sequence[str],
    folder: Folder | Bucket,
    footers: Footers,
) -> pa.Table:
    """The rows of accounts of one bucket, in the order of the files and of the rows in each, with the columns asked
    for. Each file is opened once, and no row group is read twice."""
    schema = pa.schema([table.schema().field(name) for name in columns])
    key = table.order[0]
    inside = {key, *columns} - set(table.partitions)
    parts = []
    for file in files:
        footer = footers.of(file.path, folder)
        if groups := sorted({group for account in accounts for group in _groups(footer, account, key)}):
            with opened(folder, file.path, footer) as parquet:
                rows = parquet.read_row_groups(groups, columns=inside)
            own = pa.concat_tables([_own(rows, account, key) for account in sorted(set(accounts))])
            parts.append(pa.Table.from_arrays(completed(file, own, schema), schema=schema))
    return pa.concat_tables(parts) if parts else schema.empty_table()


def count_places(files: Iterable[Written], account: str, most: int, folder: Folder | Bucket, footers: Footers) -> int:
    """In how many transactions an account's rows lie; row group by row group, and no further once above `most`."""
    place = ["height", "tx_index"]
    found: set[tuple[int, int]] = set()
    for file in files:
        footer = footers.of(file.path, folder)
        for group in _groups(footer, account):
            with opened(folder, file.path, footer) as parquet:
                rows = _own(parquet.read_row_group(group, columns=["account", *place]), account)
            distinct = rows.group_by(place).aggregate([])
            found.update(zip(*(distinct[name].to_pylist() for name in place), strict=True))
            if len(found) > most:
                return len(found)
    return len(found)


def _groups(footer: pq.FileMetaData, account: Any, key: str = "account") -> range:
    """The row groups that may have rows of an account."""
    column = footer.schema.names.index(key)

    def ends(at: int) -> pq.Statistics:
        return footer.row_group(at).column(column).statistics

    count = range(footer.num_row_groups)
    first = bisect_left(count, account, key=lambda at: ends(at).max)
    return range(first, bisect_right(count, account, lo=first, key=lambda at: ends(at).min))


def _own(rows: pa.Table, account: Any, key: str = "account") -> pa.Table:
    """The rows of an account among sorted ones."""
    accounts = rows[key]

    def name(at: int) -> Any:
        return accounts[at].as_py()

    first = bisect_left(range(len(accounts)), account, key=name)
    return rows.slice(first, bisect_right(range(len(accounts)), account, lo=first, key=name) - first)
