"""Read the rows of accounts from the files of their buckets: only the row groups that contain some.

The files of a bucket are sorted by account, and their footers name the first and last account of each row group. Files
never change, so a footer in memory stays valid as long as any version of the table names its file.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from chainfolio.errors import CorruptFile
from chainfolio.storage.kept_rows import KeptRows
from chainfolio.storage.parquet import (
    Bucket,
    Folder,
    LakeFile,
    column_index,
    open_file,
    read_file_footer,
    with_path_columns,
)
from chainfolio.table import Table

# A footer in memory takes about ten times its size in the file, and 12 KB for the descriptions of its columns. One with
# one row group has 1.2 KB, and takes 24 KB.
FOOTER_BYTES = 48 * 2**20
BYTES_PER_FOOTER, BYTES_PER_BYTE = 12_000, 10
PREFETCH_AFTER = 2
MAX_KEPT_GROUPS = 8


AccountKey = str | int  # an address, or the index of a validator


class Footers:
    """Cache of the footers that were used last, bounded in bytes. Safe to use from several threads.

    Attributes:
        size: Estimated bytes of memory.
        limit: The most of them.
    """

    def __init__(self, limit: int = FOOTER_BYTES) -> None:
        """Begin empty."""
        self.size = 0
        self.limit = limit
        self._footers: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._lock = threading.Lock()
        self._call_count = 0

    def of(self, path: str, folder: Folder | Bucket) -> pq.FileMetaData:
        """Return the footer of a file, from memory or from the file.

        Raises:
            CorruptFile: The footer does not match the file's name.
        """
        with self._lock:
            if path in self._footers:
                self._footers.move_to_end(path)
                return self._footers[path]
        footer = read_file_footer(folder, path)
        with self._lock:
            self._add(path, footer)
            while self.size > self.limit:
                self._drop(next(iter(self._footers)))
        return footer

    def drop(self, paths: Iterable[str]) -> None:
        """Drop the footers of files that were replaced."""
        with self._lock:
            for path in paths:
                self._drop(path)

    def prefetch(self, all_of: Callable[[], tuple[Sequence[LakeFile], Folder | Bucket]]) -> None:
        """At the second call, start a thread that reads the footers of all files while there is room.

        A caller that reads two accounts probably reads more. Other calls do nothing. `all_of` returns the files and
        their folder.
        """
        with self._lock:
            self._call_count += 1
            if self._call_count != PREFETCH_AFTER:
                return
        threading.Thread(target=self._fill, args=all_of(), name="footers", daemon=True).start()

    def _fill(self, files: Sequence[LakeFile], folder: Folder | Bucket) -> None:
        """Cache the footers of files until the limit is reached; stops at the first file that cannot be read."""
        with suppress(OSError, pa.ArrowException, CorruptFile):  # a reader of that file gets the error
            for file in files:
                footer = read_file_footer(folder, file.path)
                with self._lock:
                    if self.size + memory_bytes(footer) > self.limit:
                        return
                    self._add(file.path, footer)

    def _add(self, path: str, footer: pq.FileMetaData) -> None:
        if path not in self._footers:
            self._footers[path] = footer
            self.size += memory_bytes(footer)

    def _drop(self, path: str) -> None:
        footer = self._footers.pop(path, None)
        if footer is not None:
            self.size -= memory_bytes(footer)


def memory_bytes(footer: pq.FileMetaData) -> int:
    """Return about how many bytes a footer takes in memory."""
    return BYTES_PER_FOOTER + BYTES_PER_BYTE * int(footer.serialized_size)


def read_history(
    table: Table,
    files: Iterable[LakeFile],
    accounts: Sequence[AccountKey],
    columns: Sequence[str],
    folder: Folder | Bucket,
    footers: Footers,
    kept: KeptRows | None = None,
) -> pa.Table:
    """Return the rows of accounts of one bucket with some columns, by file and then account.

    Each account is read once. Accounts without rows are left out.

    Args:
        kept: Where to find and keep the rows of these accounts.

    Raises:
        CorruptFile: A file does not match its checksums.
    """
    schema = pa.schema([table.schema().field(name) for name in columns])
    key = table.order[0]
    file_columns = {key, *columns} - set(table.partitions)
    parts = []
    for file in files:
        if kept is not None:
            parts += _kept_rows(table, file, accounts, columns, folder, footers, kept)
            continue
        footer = footers.of(file.path, folder)
        if groups := sorted({group for account in accounts for group in _groups(footer, account, key)}):
            with open_file(folder, file.path, footer) as parquet:
                rows = parquet.read_row_groups(groups, columns=file_columns)
            account_rows = pa.concat_tables([_rows_of(rows, account, key) for account in sorted(set(accounts))])
            parts.append(pa.Table.from_arrays(with_path_columns(file, account_rows, schema), schema=schema))
    return pa.concat_tables([part.select(columns) for part in parts]) if parts else schema.empty_table()


def _kept_rows(
    table: Table,
    file: LakeFile,
    accounts: Sequence[AccountKey],
    columns: Sequence[str],
    folder: Folder | Bucket,
    footers: Footers,
    kept: KeptRows,
) -> list[pa.Table]:
    """Return each account's rows in one file, from memory or the file, with at least some columns.

    Rows that were read are kept, except of accounts that fill more than `MAX_KEPT_GROUPS` row groups. Accounts without
    rows are left out.
    """
    keys = {account: (table.name, file.path, account) for account in sorted(set(accounts))}
    rows = {account: kept.get(key) for account, key in keys.items()}
    missing = [account for account, each in rows.items() if each is None]
    if missing:
        footer, key = footers.of(file.path, folder), table.order[0]
        small = [account for account in missing if len(_groups(footer, account, key)) <= MAX_KEPT_GROUPS]
        read = read_history(table, [file], small, table.names, folder, footers)
        for account in small:
            rows[account] = _rows_of(read, account, key)
            kept.put(keys[account], rows[account])
        for account in set(missing) - set(small):
            rows[account] = read_history(table, [file], [account], columns, folder, footers)
    return [each for each in rows.values() if each is not None and each.num_rows]


def max_rows(files: Iterable[LakeFile], account: str, folder: Folder | Bucket, footers: Footers) -> int:
    """Return how many rows an account has at most: those of all row groups that may have some of its rows."""
    rows = 0
    for file in files:
        footer = footers.of(file.path, folder)
        rows += sum(footer.row_group(group).num_rows for group in _groups(footer, account))
    return rows


def count_transactions(
    table: Table,
    files: Iterable[LakeFile],
    account: str,
    max_count: int,
    folder: Folder | Bucket,
    footers: Footers,
    kept: KeptRows,
) -> int:
    """Return the number of an account's transactions, by kept rows where there are some.

    Counting stops after the first row group that makes the number exceed `max_count`.
    """
    columns = ["height", "tx_index"]
    transactions: set[tuple[int, int]] = set()
    for file in files:
        rows = kept.get((table.name, file.path, account))
        for part in _parts_of(file, account, columns, folder, footers) if rows is None else [rows]:
            distinct = part.group_by(columns).aggregate([])
            transactions.update(zip(*(distinct[name].to_pylist() for name in columns), strict=True))
            if len(transactions) > max_count:
                return len(transactions)
    return len(transactions)


def _parts_of(
    file: LakeFile, account: str, columns: Sequence[str], folder: Folder | Bucket, footers: Footers
) -> Iterator[pa.Table]:
    """Yield the rows of an account in one file by row group, with some columns and the account."""
    footer = footers.of(file.path, folder)
    for group in _groups(footer, account):
        with open_file(folder, file.path, footer) as parquet:
            yield _rows_of(parquet.read_row_group(group, columns=["account", *columns]), account)


def _groups(footer: pq.FileMetaData, account: AccountKey, key: str = "account") -> range:
    """Return the row groups that may have rows of an account, by their statistics.

    An empty range if none can. The file must be sorted by `key` and have statistics of all row groups.
    """
    column = column_index(footer, key)

    def ends(at: int) -> pq.Statistics:
        return footer.row_group(at).column(column).statistics

    count = range(footer.num_row_groups)
    first = bisect_left(count, account, key=lambda at: ends(at).max)
    return range(first, bisect_right(count, account, lo=first, key=lambda at: ends(at).min))


def _rows_of(rows: pa.Table, account: AccountKey, key: str = "account") -> pa.Table:
    """Return the rows of an account from rows sorted by account."""
    accounts = rows[key]

    def account_at(row: int) -> str | int:
        return accounts[row].as_py()  # type: ignore[no-any-return]

    first = bisect_left(range(len(accounts)), account, key=account_at)
    return rows.slice(first, bisect_right(range(len(accounts)), account, lo=first, key=account_at) - first)
