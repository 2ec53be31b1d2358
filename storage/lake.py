"""Write the lake: finalised rows, in one Delta table of Parquet files per `chainfolio.table.Table`.

One writer per chain (the caller holds the chain's lock), and several chains at once. A commit is atomic and carries the
mark `(stream, batch)`, so a batch that is repeated after a crash is not added twice. Local files are forced to the disk
before the commit that names them, and the commit before the call returns.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from chainfolio.blocks import Span
from chainfolio.errors import Locked
from chainfolio.storage.deltalog import (
    DEFAULT_RETENTION_H,
    PROPERTIES,
    SMALL_BYTES,
    UNMOVED,
    batch_mark,
    check_replaced,
    check_revision,
    commit_groups,
    crowded,
    entry_of,
    files_of,
    last_batch,
    mergeable,
    partition_of,
    retention_properties,
    schema_of,
    select_files,
    total_rows,
    total_size,
)
from chainfolio.storage.lake_reader import LakeReader, translate_errors
from chainfolio.storage.parquet import LakeFile, read, write
from chainfolio.storage.row_order import Rows, check_rows
from chainfolio.table import Table
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from chainfolio.storage.object_store import ObjectStore

ATTEMPTS = 8
MARKED_ATTEMPTS = 200  # each one fails if any other commit came first
_JITTER = random.Random()  # pauses between attempts; no stored data depends on it
RETENTION_H = 168
ORPHAN_H = 24  # age of files of killed writers, after which none is being written any more


@dataclass(frozen=True, slots=True)
class CompactReport:
    """Sizes of one chain of one table before and after a compaction, and the number of deleted files."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    deleted: int


class Lake(LakeReader):
    """The tables at one address, read and written. Safe to use from several threads."""

    def __init__(self, uri: str, store: ObjectStore | None = None) -> None:
        super().__init__(uri, store)
        # Writers have handles of their own, so that readers do not wait for long writes.
        self._writers: dict[str, DeltaTable] = {}
        self._writing: dict[str, threading.Lock] = {name: threading.Lock() for name in TABLES}

    def append(self, table: Table, rows: pa.Table, *, stream: str, batch: int) -> bool:
        """Add rows in one commit marked `(stream, batch)`. Without rows nothing is committed, nor the mark.

        Returns:
            False, without writing, if the stream has this batch or a later one already.

        Raises:
            StaleTable: The stored table has another revision.
            Locked: Other writers keep changing the table.
            StoreError: The table cannot be read or written.
        """
        check_rows(table, rows)
        with translate_errors(table):
            if self._has_batch(table, stream, batch):
                return False
            if rows.num_rows:
                added = write(table, [rows], self.storage.folder(table.name))
                return self._commit(table, added, [], (stream, batch))
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
            False, without writing, if the stream has this batch or a later one already.

        Raises:
            StaleTable: The stored table has another revision.
            Locked: Other writers keep changing the table.
            StoreError: The table cannot be read or written.
        """
        with translate_errors(table):
            if self._has_batch(table, stream, batch):
                return False
            added = write(table, _batches_of(rows), self.storage.folder(table.name))
            assert {(file.chain, bucket if bucket is None else file.bucket) for file in added} <= {(chain, bucket)}, (
                f"rows of {table.name} belong to another chain or bucket than the one they replace"
            )
            removed = self._newest(table, chain, bucket)
            return self._commit(table, added, removed, None if batch is None else (stream, batch))

    def delete_span(self, chain: str, span: Span, tables: Iterable[Table] = TABLES.values()) -> None:
        """Delete the rows of a chain from the first to the last height of a span.

        Each table has a commit of its own. Files with rows at these heights only are dropped without being read.
        Repeating the call changes nothing.

        Raises:
            StaleTable: A stored table has another revision.
            Locked: Other writers keep changing a table.
            StoreError: A table cannot be read or written.
        """
        for table in tables:
            with translate_errors(table):
                affected = [
                    file for file in self._newest(table, chain) if file.first <= span.last and file.last >= span.first
                ]
                if affected:
                    self._commit(
                        table,
                        write(table, self._outside(table, affected, span), self.storage.folder(table.name)),
                        affected,
                    )

    def _outside(self, table: Table, files: list[LakeFile], span: Span) -> Iterator[pa.Table]:
        """Yield the rows of the files outside a span; files that lie in it are not read."""
        import pyarrow.compute as pc

        partial = [file for file in files if file.first < span.first or file.last > span.last]
        for rows in read(table, partial, table.names, self.storage.folder(table.name)):
            remaining = rows.filter(pc.or_(pc.less(rows["height"], span.first), pc.greater(rows["height"], span.last)))
            if remaining.num_rows:
                yield remaining

    def drop(self, table: Table, chain: str, paths: Collection[str]) -> None:
        """Remove files of a chain, with their rows, from a table without reading them.

        `paths` are relative to the table; unknown ones are ignored. The files stay on the disk until a vacuum.
        """
        with translate_errors(table):
            dropped = [file for file in self._newest(table, chain) if file.path in paths]
            if dropped:
                self._commit(table, [], dropped)

    def is_crowded(self, table: Table, chain: str, max_files: int) -> bool:
        """Return True if `merge_crowded` would merge files."""
        with translate_errors(table):
            return any(crowded(self._newest(table, chain), SMALL_BYTES, max_files))

    def merge_crowded(self, table: Table, chain: str, max_files: int) -> int:
        """Merge small files where more than `max_files` are neighbours. Return how many files were replaced."""
        with translate_errors(table):
            self._has_batch(table, "", None)
            runs = list(crowded(self._newest(table, chain), SMALL_BYTES, max_files))
            for group in commit_groups(runs):
                self._merge(table, group)
        return sum(map(len, runs))

    def delete_replaced(self, table: Table, retention_hours: int) -> int:
        """Delete files that no version has named for `retention_hours`, of all chains. Return their number.

        Files that no version ever named are deleted only after ORPHAN_H hours or more. Entries of the log stay as long
        from now on, and are deleted at a checkpoint.
        """
        with translate_errors(table):
            self._limit_log(table, retention_hours)
            orphans = self._vacuum(table, max(retention_hours, ORPHAN_H))
            return orphans + (self._vacuum(table, retention_hours) if retention_hours < ORPHAN_H else 0)

    def compact(
        self, table: Table, chain: str, *, small: int = SMALL_BYTES, retention_hours: int = RETENTION_H
    ) -> CompactReport:
        """Merge small files into large ones in the table's order, then delete old files that no version names.

        The rows stay the same. A table that does not exist gives a report of zeros.

        Args:
            small: Size in bytes below which a file is merged.
            retention_hours: Minimum age of deleted files; must exceed the longest read.

        Raises:
            StaleTable: The stored table has another revision.
            Locked: Other writers keep changing the table.
            StoreError: The table cannot be read or written.
        """
        with translate_errors(table):
            self._has_batch(table, "", None)
            before = self._newest(table, chain)
            for runs in commit_groups(mergeable(before, small)):
                self._merge(table, runs)
            after = self._newest(table, chain)
            deleted = self._vacuum(table, retention_hours)
        return CompactReport(len(before), len(after), total_size(before), total_size(after), total_rows(after), deleted)

    def _merge(self, table: Table, runs: list[list[LakeFile]]) -> None:
        """Write the rows of each run of files into new ones, and replace them in one commit.

        If it fails, the new files are removed.
        """
        folder = self.storage.folder(table.name)
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
        rows = read(table, files, table.names, self.storage.folder(table.name))
        if "bucket" not in table.partitions and all(earlier.last < later.first for earlier, later in pairwise(files)):
            yield from rows
        else:
            yield pa.Table.from_batches(rows, table.schema())

    def _limit_log(self, table: Table, hours: int) -> None:
        """Store how long the Delta library keeps entries of a table's log, and names of replaced files.

        Nothing is stored if another commit comes first: the next call does it.
        """
        properties = retention_properties(hours)
        with self._writing[table.name], suppress(CommitFailedError):
            handle = self._writer(table)
            if handle is not None and not properties.items() <= handle.metadata().configuration.items():
                before = handle.version()
                handle.alter.set_table_properties(properties)
                self.storage.sync_commits(table.name, before)

    def _vacuum(self, table: Table, retention_hours: int) -> int:
        """Delete files that no commit names any longer and that are old enough; return their number.

        From ORPHAN_H hours of retention on, files that no commit ever named are deleted too.
        """
        with self._writing[table.name]:
            handle = self._writer(table)
            if handle is None:
                return 0
            # Full: also files of killed writers that no commit names. Only their age distinguishes them from files
            # that are being written.
            before = handle.version()
            deleted = handle.vacuum(
                retention_hours, dry_run=False, enforce_retention_duration=False, full=retention_hours >= ORPHAN_H
            )
            self.storage.sync_commits(table.name, before)  # a vacuum has two commits, unless it finds nothing
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
        batch: tuple[str, int] | None = None,
        *,
        changes: bool = True,
    ) -> bool:
        """Add and remove files in one commit; repeat it if writers of other chains committed meanwhile.

        With a batch, the commit succeeds only on the version in which the stream was seen not to have it, and with
        removed files only on one that has them. So two processes that do the same, because one lost its lock, do it
        once.

        A missing table is created.

        Args:
            added: Files that are written already.
            removed: Files of the table; they stay on disk.
            batch: The stream and the number with which the commit is marked.
            changes: False if the table's rows stay the same, as after merging files.

        Returns:
            False, without a commit, if the stream has this batch or a later one already, by another commit. True if a
            commit whose answer was lost stored these files.

        Raises:
            Locked: Too many commits failed, or another process removed some of the files.
            StaleTable: The stored table has another revision.
        """
        mark = batch_mark(*batch) if batch is not None else UNMOVED if removed else None
        paths = [{file.path for file in files} for files in (added, removed)]
        now = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [entry_of(file, changes) for file in added]
        actions += [RemoveAction(file.path, changes, now, file.size, partition_of(file)) for file in removed]
        with self._writing[table.name]:
            for attempt in range(MARKED_ATTEMPTS if mark is not None else ATTEMPTS):
                # Not updated first: a conflict with newer commits makes this one fail, and is handled below.
                handle = self._writers.get(table.name) or self._writer(table)
                before = -1 if handle is None else handle.version()
                handle = handle or self._create_table(table)
                check_revision(table, handle)
                if batch is not None and last_batch(handle, batch[0]) >= batch[1]:
                    # An object store may have made this commit although its answer was lost. Files that no commit
                    # names are deleted later.
                    return attempt > 0 and bool(added) and paths[0] <= _paths(handle)
                if removed and not check_replaced(handle, table, *paths):
                    return True
                try:
                    handle.create_write_transaction(
                        actions, "append", schema_of(table), list(table.partitions), commit_properties=mark
                    )
                except CommitFailedError:
                    self._writers.pop(table.name, None)
                    time.sleep(_JITTER.uniform(0, 0.002 * min(attempt, 10)))
                    continue
                self.storage.sync_commits(table.name, before)
                return True
        raise Locked("lake", f"table {table.name}: other writers keep changing it", remedy="run it again")

    def _writer(self, table: Table) -> DeltaTable | None:
        """Return the newest version of a table, None if it does not exist; a torn last entry is discarded."""
        try:
            return self._open_newest(self._writers, table)
        except DeltaError:
            if not self.storage.discard_torn_entry(table.name):
                raise
            self._writers.pop(table.name, None)
            return self._open_newest(self._writers, table)

    def _create_table(self, table: Table) -> DeltaTable:
        """Create the table on disk unless it exists, and return it."""
        try:
            DeltaTable.create(
                self._path(table),
                schema_of(table),
                mode="ignore",
                partition_by=list(table.partitions),
                name=table.name,
                description=table.description,
                configuration=PROPERTIES | retention_properties(DEFAULT_RETENTION_H),
                storage_options=self.storage.delta_options,
            )
        except DeltaError:
            if self._writer(table) is None:  # else another process created it at the same moment
                raise
        handle = self._writer(table)
        assert handle is not None, f"table {table.name} was just created"
        return handle


def _paths(handle: DeltaTable) -> set[str]:
    return {file.path for file in files_of(handle)}


def _batches_of(rows: pa.Table | Iterable[pa.RecordBatch]) -> Iterable[Rows]:
    return [rows] if isinstance(rows, pa.Table) else rows
