"""The lake: finalised rows, in one Delta table of Parquet files per `chainfolio.table.Table`.

Any number of readers. One writer per chain (the caller holds the chain's lock), and several chains at once. A commit is
atomic and carries the mark `(stream, batch)`, so a batch that is repeated after a crash is not added twice. Local files
are forced to the disk before the commit that names them, and the commit before the call returns.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from chainfolio.blocks import Span, Spans
from chainfolio.errors import CorruptFile, Locked, StaleTable, StorageFull, StoreError, TooManyFiles
from chainfolio.storage.arrays import numbers
from chainfolio.storage.decimals import with_decimals
from chainfolio.storage.deltalog import (
    PROPERTIES,
    SMALL_BYTES,
    batch_mark,
    check_revision,
    commit_groups,
    entry_of,
    files_of,
    last_batch,
    mergeable,
    partition_of,
    revision_of,
    schema_of,
    select_files,
    total_rows,
    total_size,
)
from chainfolio.storage.disk import sync
from chainfolio.storage.frames import frame
from chainfolio.storage.history import AccountKey, Footers, count_transactions, read_history
from chainfolio.storage.parquet import Bucket, Folder, LakeFile, Rows, check_rows, compare_file, in_order, read, write
from chainfolio.storage.windows import windows
from chainfolio.table import Table, bucket
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    import polars as pl

ATTEMPTS = 8
RETENTION_H = 168


@dataclass(frozen=True, slots=True)
class CompactReport:
    """Sizes of one chain of one table before and after a compaction, and the number of deleted files."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    deleted: int


class Lake:
    """The tables at one address: a folder, or `s3://bucket/prefix`. Safe to use from several threads."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.removeprefix("file://").rstrip("/")
        self.is_local = "://" not in self.uri
        # Reused handles commit three times faster. Writers have their own, so that readers do not wait for long writes.
        self._readers: dict[str, DeltaTable] = {}
        self._writers: dict[str, DeltaTable] = {}
        self._lists: dict[str, tuple[int, int, list[LakeFile]]] = {}
        self._footers = Footers()
        self._reading = threading.Lock()
        self._writing: dict[str, threading.Lock] = {name: threading.Lock() for name in TABLES}

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, table: Table, rows: pa.Table, *, stream: str, batch: int) -> bool:
        """Add rows in one commit marked `(stream, batch)`.

        Returns:
            False, without writing, if the stream has this batch already.

        Raises:
            StaleTable: The stored table has another revision.
            Locked: Other writers keep changing the table.
            StoreError: The table cannot be read or written.
        """
        check_rows(table, rows)
        with _translate_errors(table):
            if self._has_batch(table, stream, batch):
                return False
            if rows.num_rows:
                added = write(table, [rows], self._folder(table))
                self._commit(table, added, [], batch_mark(stream, batch))
            return True

    def replace(
        self,
        table: Table,
        chain: str,
        rows: pa.Table | Iterable[pa.RecordBatch],
        *,
        bucket: int | None = None,
        stream: str = "",
        batch: int | None = None,
    ) -> bool:
        """Replace all rows of one chain (or of one bucket of it) in one commit.

        With `stream` and `batch` the commit is marked as in `append`.

        Returns:
            False, without writing, if the stream has this batch already.

        Raises:
            StaleTable: The stored table has another revision.
            Locked: Other writers keep changing the table.
            StoreError: The table cannot be read or written.
        """
        with _translate_errors(table):
            if self._has_batch(table, stream, batch):
                return False
            added = write(table, _batches_of(rows), self._folder(table))
            assert {(file.chain, bucket if bucket is None else file.bucket) for file in added} <= {(chain, bucket)}, (
                f"rows of {table.name} belong to another chain or bucket than the one they replace"
            )
            removed = self._newest(table, chain, bucket)
            self._commit(table, added, removed, None if batch is None else batch_mark(stream, batch))
            return True

    def delete_span(self, chain: str, span: Span, tables: Iterable[Table] = TABLES.values()) -> None:
        """Delete the rows of a chain at some heights. Repeating the call changes nothing.

        Files with rows at these heights only are dropped without being read.
        """
        for table in tables:
            with _translate_errors(table):
                affected = [
                    file for file in self._newest(table, chain) if file.first <= span.last and file.last >= span.first
                ]
                if affected:
                    self._commit(
                        table, write(table, self._outside(table, affected, span), self._folder(table)), affected
                    )

    def _outside(self, table: Table, files: list[LakeFile], span: Span) -> Iterator[pa.Table]:
        import pyarrow.compute as pc

        partial = [file for file in files if file.first < span.first or file.last > span.last]
        for rows in read(table, partial, table.names, self._folder(table)):
            remaining = rows.filter(pc.or_(pc.less(rows["height"], span.first), pc.greater(rows["height"], span.last)))
            if remaining.num_rows:
                yield remaining

    def drop(self, table: Table, chain: str, paths: Collection[str]) -> None:
        """Remove files, with their rows, from a table without reading them."""
        with _translate_errors(table):
            dropped = [file for file in self._newest(table, chain) if file.path in paths]
            if dropped:
                self._commit(table, [], dropped)

    def compact(
        self, table: Table, chain: str, *, small: int = SMALL_BYTES, retention_hours: int = RETENTION_H
    ) -> CompactReport:
        """Merge small files into large ones in the table's order, then delete old files that no version names.

        Args:
            small: Size in bytes below which a file is merged.
            retention_hours: Minimum age of deleted files; must exceed the longest read.
        """
        with _translate_errors(table):
            self._has_batch(table, "", None)
            before = self._newest(table, chain)
            for runs in commit_groups(mergeable(before, small)):
                self._merge(table, runs)
            after = self._newest(table, chain)
            deleted = self._vacuum(table, retention_hours)
        return CompactReport(len(before), len(after), total_size(before), total_size(after), total_rows(after), deleted)

    def _merge(self, table: Table, runs: list[list[LakeFile]]) -> None:
        folder = self._folder(table)
        merged: list[LakeFile] = []
        try:
            for run in runs:
                merged += write(table, self._in_order(table, run), folder)
        except BaseException:  # also if it is cancelled: no commit will name these files
            for file in merged:
                folder.remove(file.path)
            raise
        old = [file for run in runs for file in run]
        assert total_rows(merged) == total_rows(old), "no row is lost or doubled"
        self._commit(table, merged, old, changes=False)

    def _in_order(self, table: Table, files: list[LakeFile]) -> Iterator[Rows]:
        """Yield the rows of files in the table's order; files that overlap are sorted in memory."""
        rows = read(table, files, table.names, self._folder(table))
        if "bucket" not in table.partitions and all(earlier.last < later.first for earlier, later in pairwise(files)):
            yield from rows
        else:
            yield pa.Table.from_batches(rows, table.schema())

    def _vacuum(self, table: Table, retention_hours: int) -> int:
        with self._writing[table.name]:
            handle = self._writer(table)
            if handle is None:
                return 0
            # Full: also files of killed writers that no commit names. Only their age distinguishes them from files
            # that are being written.
            deleted = handle.vacuum(
                retention_hours, dry_run=False, enforce_retention_duration=False, full=retention_hours >= 24
            )
        return len(deleted)

    def _has_batch(self, table: Table, stream: str, batch: int | None) -> bool:
        """Return True if the table has the batch. Raise StaleTable if it has another revision."""
        with self._writing[table.name]:
            handle = self._writer(table)
            if handle is None:
                return False
            check_revision(table, handle)
            return batch is not None and last_batch(handle, stream) >= batch

    def _newest(self, table: Table, chain: str, bucket: int | None = None) -> list[LakeFile]:
        with self._writing[table.name]:
            return select_files(files_of(self._writer(table)), chain, bucket)

    def _commit(
        self,
        table: Table,
        added: list[LakeFile],
        removed: list[LakeFile],
        mark: CommitProperties | None = None,
        *,
        changes: bool = True,
    ) -> None:
        """Add and remove files in one commit; repeat it if writers of other chains committed meanwhile.

        Raises:
            Locked: `ATTEMPTS` commits failed.
        """
        now = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [entry_of(file, changes) for file in added]
        actions += [RemoveAction(file.path, changes, now, file.size, partition_of(file)) for file in removed]
        with self._writing[table.name]:
            for _ in range(ATTEMPTS):
                # Not updated first: a conflict with newer commits makes this one fail, and is handled below.
                handle = self._writers.get(table.name) or self._writer(table)
                before = -1 if handle is None else handle.version()
                handle = handle or self._created(table)
                check_revision(table, handle)
                try:
                    handle.create_write_transaction(
                        actions, "append", schema_of(table), list(table.partitions), commit_properties=mark
                    )
                except CommitFailedError:
                    self._writers.pop(table.name, None)
                    continue
                self._sync_commits(table, before)
                return
        raise Locked("lake", f"table {table.name}: other writers keep changing it", remedy="run it again")

    def _writer(self, table: Table) -> DeltaTable | None:
        try:
            return self._open_newest(self._writers, table)
        except DeltaError:
            if not self._discard_torn_entry(table):
                raise
            return self._open_newest(self._writers, table)

    def _discard_torn_entry(self, table: Table) -> bool:
        """Rename a last log entry that a power failure left incomplete, and return True if there was one.

        Such an entry was never forced to the disk, so its commit was never confirmed.
        """
        entries = sorted((Path(self._path(table)) / "_delta_log").glob("*.json")) if self.is_local else []
        if not entries:
            return False
        try:
            for line in entries[-1].read_bytes().splitlines():
                json.loads(line)
        except ValueError:
            entries[-1].rename(entries[-1].with_suffix(".torn"))
            self._writers.pop(table.name, None)
            return True
        return False

    def _created(self, table: Table) -> DeltaTable:
        DeltaTable.create(
            self._path(table),
            schema_of(table),
            mode="ignore",
            partition_by=list(table.partitions),
            name=table.name,
            description=table.description,
            configuration=PROPERTIES,
        )
        handle = self._writer(table)
        assert handle is not None, f"table {table.name} was just created"
        return handle

    def _sync_commits(self, table: Table, before: int) -> None:
        """Force all commits after version `before` to the disk, which Delta does not."""
        if not self.is_local:
            return
        log = Path(self._path(table)) / "_delta_log"
        version = before + 1
        while (entry := log / f"{version:020}.json").exists():
            sync(entry)
            checkpoint = entry.with_suffix(".checkpoint.parquet")
            if checkpoint.exists():
                sync(checkpoint)
            version += 1
        sync(log)
        if before < 0:
            sync(log.parent)
            sync(log.parent.parent)

    # --- reading -----------------------------------------------------------------------------------------------------

    def exists(self, table: Table) -> bool:
        """Return True if the table was written before."""
        with _translate_errors(table), self._reading:
            return self._open_newest(self._readers, table) is not None

    def last(self, table: Table, stream: str) -> int:
        """Return the number of the last batch of `stream` in the table; -1 if there is none."""
        with _translate_errors(table), self._reading:
            handle = self._open_newest(self._readers, table)
            return -1 if handle is None else last_batch(handle, stream)

    def chains(self, table: Table) -> list[str]:
        """Return the chains that have rows in the table."""
        return sorted({file.chain for file in self._files(table)})

    def files(self, table: Table, chain: str | None = None) -> list[str]:
        """Return the addresses of the table's Parquet files in the order of their rows."""
        return [self.address(table, file) for file in self._files(table, chain)]

    def address(self, table: Table, file: LakeFile) -> str:
        """Return the address of one file of a table."""
        return f"{self._path(table)}/{file.path}"

    def entries(self, table: Table) -> list[LakeFile]:
        """Return the table's files with their facts in the log, in the order of their rows."""
        return self._files(table)

    def examine(self, table: Table, file: LakeFile) -> Iterator[int]:
        """Compare a file with its checksums, and yield the number of bytes of each step.

        Raises:
            CorruptFile: Some bytes do not match.
        """
        with _translate_errors(table):
            yield from compare_file(self._folder(table), file.path)

    def count(self, table: Table, chain: str | None = None) -> int:
        """Return the number of rows of one chain, or of all chains. Only the log is read."""
        return total_rows(self._files(table, chain))

    def scan(self, table: Table, *, chain: str | None = None, heights: Iterable[Span] | None = None) -> pl.LazyFrame:
        """Return the present rows as a lazy frame; empty if the table does not exist.

        Each raw column has a decimal column `<name>_dec`, which costs nothing unless it is used.

        Args:
            chain: Only this chain; None for all.
            heights: Skip files and row groups without rows at these heights. The caller filters the remaining rows.

        Raises:
            StaleTable: The stored table has another revision.
            CorruptFile: A file does not match its checksums; raised when the frame is collected.
        """
        spans = None if heights is None else Spans(heights)
        # By a list of files, not by the handle: it changes to newer versions before the frame is collected.
        files = [file for file in self._files(table, chain) if spans is None or spans & [Span(file.first, file.last)]]
        return with_decimals(frame(table, lambda names: self._batches(table, files, names, spans)), table)

    def of_accounts(
        self,
        table: Table,
        chain: str,
        accounts: Sequence[str] | Sequence[int],
        columns: Sequence[str] | None = None,
    ) -> pl.LazyFrame:
        """Read the rows of accounts from a table by account.

        This reads a few row groups of their buckets, each file once. Each raw column has a decimal column `<name>_dec`.

        Args:
            columns: Columns to read; None for all.
        """
        import polars as pl

        files, folder = self._files(table, chain), self._folder(table)
        accounts_by_bucket: dict[int, list[AccountKey]] = {}
        for account in accounts:
            accounts_by_bucket.setdefault(bucket(account), []).append(account)
        with _translate_errors(table):
            if self.is_local:
                self._footers.prefetch(lambda: (files, folder))
            parts = [
                read_history(
                    table,
                    select_files(files, chain, number),
                    bucket_accounts,
                    columns or table.names,
                    folder,
                    self._footers,
                )
                for number, bucket_accounts in accounts_by_bucket.items()
            ]
            none = read_history(table, [], [], columns or table.names, folder, self._footers)
        frame = pl.from_arrow(pa.concat_tables([none, *parts]))
        assert isinstance(frame, pl.DataFrame)
        return with_decimals(frame.lazy(), table, columns or ())

    def count_transactions(self, table: Table, chain: str, account: str, max_count: int) -> int:
        """Return the number of an account's transactions in a table by account.

        Counting stops after the first row group that makes the number exceed `max_count`.
        """
        with _translate_errors(table):
            files = self._files(table, chain, bucket(account))
            return count_transactions(files, account, max_count, self._folder(table), self._footers)

    def window(self, table: Table, chain: str, span: Span) -> pa.Table:
        """Return a chain's rows at some heights in the table's order.

        Polars is not used: loading it takes longer than this read.
        """
        files = [file for file in self._files(table, chain) if file.first <= span.last and file.last >= span.first]
        parts = []
        for batch in self._batches(table, files, table.names):
            heights = numbers(batch.column("height"))
            assert heights is not None, "heights are integers"
            is_in_span = (heights >= span.first) & (heights <= span.last)
            parts.append(pa.table(batch) if is_in_span.all() else pa.table(batch).filter(pa.array(is_in_span)))
        return in_order(table, pa.concat_tables(parts)) if parts else table.schema().empty_table()

    def windows(self, tables: Sequence[Table], chain: str, rows: int) -> Iterator[dict[str, pa.Table]]:
        """Yield a chain's rows of some tables by name, in consecutive spans of heights of about `rows` rows."""
        files = {table.name: (table, self._files(table, chain)) for table in tables}
        yield from windows(files, lambda table, table_files: self._batches(table, table_files, table.names), rows)

    def _batches(
        self, table: Table, files: list[LakeFile], columns: list[str], heights: Spans | None = None
    ) -> Iterator[pa.RecordBatch]:
        with _translate_errors(table):
            yield from read(table, files, columns, self._folder(table), heights)

    def _files(self, table: Table, chain: str | None = None, bucket: int | None = None) -> list[LakeFile]:
        with _translate_errors(table), self._reading:
            handle = self._open_newest(self._readers, table)
            if handle is None:
                return []
            listing = self._lists.get(table.name)
            if listing is None or listing[0] != handle.version():
                listing = self._lists[table.name] = (handle.version(), revision_of(handle), files_of(handle))
        if listing[1] != table.revision:
            raise StaleTable(table.name, listing[1], table.revision)
        return select_files(listing[2], chain, bucket)

    def _open_newest(self, handles: dict[str, DeltaTable], table: Table) -> DeltaTable | None:
        """Return the table's handle at its newest version; None if the table does not exist."""
        if table.name in handles:
            if not self._is_newest(table, handles[table.name].version()):
                handles[table.name].update_incremental()
        elif self.is_local and not Path(self._path(table), "_delta_log").exists():
            return None
        else:
            try:
                handles[table.name] = DeltaTable(self._path(table))
            except TableNotFoundError:
                return None
        return handles[table.name]

    def _is_newest(self, table: Table, version: int) -> bool:
        """Return True if no commit follows `version`. False for object stores, where it is not checked.

        Checking for the next log entry takes a hundredth of listing the log. The log is cleaned from its oldest entry
        on: if the entry of `version` exists, so does a later one.
        """
        if not self.is_local:
            return False
        current, following = (
            Path(self._path(table), "_delta_log", f"{number:020}.json") for number in (version, version + 1)
        )
        return current.exists() and not following.exists()

    def _folder(self, table: Table) -> Folder | Bucket:
        if self.is_local:
            return Folder(Path(self._path(table)))
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return Bucket(PyFileSystem(DeltaStorageHandler(self._path(table))))

    def _path(self, table: Table) -> str:
        return f"{self.uri}/{table.name}"


def _batches_of(rows: pa.Table | Iterable[pa.RecordBatch]) -> Iterable[Rows]:
    return [rows] if isinstance(rows, pa.Table) else rows


@contextmanager
def _translate_errors(table: Table) -> Iterator[None]:
    """Raise errors of the libraries as StoreError and its subclasses."""
    try:
        yield
    except CorruptFile as error:
        raise error if error.table else CorruptFile(error.path, error.reason, table.name) from None
    except (DeltaError, OSError, pa.ArrowException) as error:
        text = str(error)
        if any(sign in text for sign in ("No space left", "os error 28", "Disk quota exceeded")):
            raise StorageFull("lake") from error
        if any(sign in text for sign in ("Too many open files", "os error 24")):
            raise TooManyFiles("lake") from error
        raise StoreError("lake", f"table {table.name}: {text.strip().splitlines()[0][:300]}") from error
