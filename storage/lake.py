"""The lake: finalised rows for ever, one Delta table per `chainfolio.table.Table`, plain Parquet inside.

Any number of readers; one writer a chain (the caller holds the chain's lock), several chains at once. A commit is
atomic and carries the mark `(stream, batch)`, so that a batch which is written again after a crash changes nothing. A
local file is forced to the disk before the commit that names it, and the commit before the call returns.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from chainfolio.blocks import Span, Spans
from chainfolio.errors import Busy, Damaged, StaleTable, StorageFull, StoreError, TooManyFiles
from chainfolio.table import Table, bucket
from chainfolio.tables import TABLES
from storage.arrays import numbers
from storage.decimals import with_decimals
from storage.deltalog import (
    PROPERTIES,
    SMALL_BYTES,
    as_written,
    check_revision,
    chosen,
    describe,
    entry_of,
    last_batch,
    listed,
    mark_of,
    mergeable,
    partition_of,
    portions,
    relax,
    revision_of,
    rows_of,
    schema_of,
    size_of,
)
from storage.disk import sync
from storage.frames import frame
from storage.history import Footers, count_places, history
from storage.parquet import Bucket, Folder, Written, check, examined, in_order, read, write
from storage.windows import windows

if TYPE_CHECKING:
    import polars as pl

ATTEMPTS = 8
RETENTION_H = 168


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What a compaction did to one chain of one table."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    deleted: int


class Lake:
    """All tables below one address: a folder, or `s3://bucket/prefix`. Safe to use from several threads."""

    def __init__(self, uri: str, *, options: Mapping[str, str] | None = None) -> None:
        self.uri = uri.removeprefix("file://").rstrip("/")
        self.options = dict(options or {})
        self.is_local = "://" not in self.uri
        # A handle that is held commits three times faster than one opened each time. Writers have their own, so that a
        # long write keeps no reader waiting.
        self._readers: dict[str, DeltaTable] = {}
        self._writers: dict[str, DeltaTable] = {}
        self._lists: dict[str, tuple[int, int, list[Written]]] = {}
        self._footers = Footers()
        self._reading = threading.Lock()
        self._writing: dict[str, threading.Lock] = {name: threading.Lock() for name in TABLES}

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, table: Table, rows: pa.Table, *, stream: str, batch: int) -> bool:
        """Add rows in one commit marked `(stream, batch)`; False, and nothing is written, where it is there already."""
        check(table, rows)
        with _said(table):
            if self._is_there(table, stream, batch):
                return False
            if rows.num_rows:
                added = write(table, [rows], self._folder(table))
                self._commit(table, added, [], mark_of(stream, batch))
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
        """Put `rows` in place of all rows of one chain (or of one bucket of it), in one commit; readers see old or new.

        With `stream` and `batch` the commit is marked as by `append`, and False means that it had been made before.
        """
        with _said(table):
            if self._is_there(table, stream, batch):
                return False
            added = write(table, _each(rows), self._folder(table))
            assert {(file.chain, bucket if bucket is None else file.bucket) for file in added} <= {(chain, bucket)}, (
                f"rows of {table.name} belong to another chain or bucket than the one they replace"
            )
            removed = self._newest(table, chain, bucket)
            self._commit(table, added, removed, None if batch is None else mark_of(stream, batch))
            return True

    def recreate(self, table: Table, rows: pa.Table | Iterable[pa.RecordBatch]) -> None:
        """Replace the whole table, all chains, by `rows` in the columns and revision of `table`, in one commit.

        The caller holds the locks of all its chains. Marks of earlier batches stay.
        """
        with _said(table):
            added = write(table, _each(rows), self._folder(table))
            with self._writing[table.name]:
                handle = self._writer(table)
                create_table_with_add_actions(
                    self._path(table), schema_of(table), [entry_of(file) for file in added], mode="overwrite",
                    partition_by=list(table.partitions), name=table.name, description=table.about,
                    configuration=PROPERTIES, storage_options=self.options or None,
                )  # fmt: skip
                self._force(table, -1 if handle is None else handle.version())

    def forget(self, chain: str, span: Span, tables: Iterable[Table] = TABLES.values()) -> None:
        """Delete what tables hold of a chain at some heights; a file that has no others is not read for it. For
        repairs; running it again does no harm."""
        for table in tables:
            with _said(table):
                hit = [
                    file for file in self._newest(table, chain) if file.first <= span.last and file.last >= span.first
                ]
                if hit:
                    self._commit(table, write(table, self._outside(table, hit, span), self._folder(table)), hit)

    def _outside(self, table: Table, files: list[Written], span: Span) -> Iterator[pa.Table]:
        import pyarrow.compute as pc

        some = [file for file in files if file.first < span.first or file.last > span.last]
        for rows in read(table, some, table.names, self._folder(table)):
            kept = rows.filter(pc.or_(pc.less(rows["height"], span.first), pc.greater(rows["height"], span.last)))
            if kept.num_rows:
                yield kept

    def drop(self, table: Table, chain: str, paths: Collection[str]) -> None:
        """Take some files out of a table, with their rows, unread."""
        with _said(table):
            gone = [file for file in self._newest(table, chain) if file.path in paths]
            if gone:
                self._commit(table, [], gone)

    def add_checksums(self, table: Table, chain: str) -> int:
        """Write the files of a chain anew that have no checksums, for an older release wrote them; how many."""
        with _said(table):
            self._is_there(table, "", None)
            bare = [file for file in self._newest(table, chain) if not file.is_summed]
            for runs in portions([file] for file in bare):
                self._merge(table, runs)
        return len(bare)

    def compact(
        self, table: Table, chain: str, *, small: int = SMALL_BYTES, retention_hours: int = RETENTION_H
    ) -> CompactReport:
        """Merge small files into large ones in the table's order, then delete files that nobody has named for
        `retention_hours`: longer than any reader reads."""
        with _said(table):
            self._is_there(table, "", None)
            before = self._newest(table, chain)
            for runs in portions(mergeable(before, small)):
                self._merge(table, runs)
            after = self._newest(table, chain)
            deleted = self._vacuum(table, retention_hours)
        return CompactReport(len(before), len(after), size_of(before), size_of(after), rows_of(after), deleted)

    def _merge(self, table: Table, runs: list[list[Written]]) -> None:
        folder = self._folder(table)
        merged: list[Written] = []
        try:
            for run in runs:
                merged += write(table, self._in_order(table, run), folder)
        except BaseException:  # whatever stopped it: what nobody will name takes no room
            for file in merged:
                folder.remove(file.path)
            raise
        old = [file for run in runs for file in run]
        assert rows_of(merged) == rows_of(old), "no row is lost or doubled"
        self._commit(table, merged, old, changes=False)

    def _in_order(self, table: Table, files: list[Written]) -> Iterator[Any]:
        """The rows of some files in the table's order; files that do not follow each other are sorted in memory."""
        rows = read(table, files, table.names, self._folder(table))
        if "bucket" not in table.partitions and all(one.last < other.first for one, other in pairwise(files)):
            yield from rows
        else:
            yield pa.Table.from_batches(rows, table.schema())

    def _vacuum(self, table: Table, retention_hours: int) -> int:
        with self._writing[table.name]:
            handle = self._writer(table)
            if handle is None:
                return 0
            # Full: also what a killed writer left and no commit ever named. Only its age tells that from a file which
            # is being written right now.
            gone = handle.vacuum(
                retention_hours, dry_run=False, enforce_retention_duration=False, full=retention_hours >= 24
            )
        return len(gone)

    def _is_there(self, table: Table, stream: str, batch: int | None) -> bool:
        """Whether a batch was written before; a table of another revision is not written to at all."""
        with self._writing[table.name]:
            handle = self._writer(table)
            if handle is None:
                return False
            check_revision(table, handle)
            return batch is not None and last_batch(handle, stream) >= batch

    def _newest(self, table: Table, chain: str, bucket: int | None = None) -> list[Written]:
        with self._writing[table.name]:
            return chosen(listed(self._writer(table)), chain, bucket)

    def _commit(
        self,
        table: Table,
        added: list[Written],
        removed: list[Written],
        mark: CommitProperties | None = None,
        *,
        changes: bool = True,
    ) -> None:
        """Name and un-name files in one commit, whatever the writers of other chains did meanwhile."""
        now = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [entry_of(file, changes) for file in added]
        actions += [RemoveAction(file.path, changes, now, file.size, partition_of(file)) for file in removed]
        with self._writing[table.name]:
            for _ in range(ATTEMPTS):
                # Not brought up to date first: what the newer commits of others mean for this one is looked at below.
                handle = self._writers.get(table.name) or self._writer(table)
                before = -1 if handle is None else handle.version()
                handle = handle or self._created(table)
                check_revision(table, handle)
                try:
                    describe(handle)
                    relax(table, handle)
                    handle.create_write_transaction(
                        actions, "append", schema_of(table), list(table.partitions), commit_properties=mark
                    )
                except CommitFailedError:
                    self._writers.pop(table.name, None)
                    continue
                self._force(table, before)
                return
        raise Busy("lake", f"table {table.name}: other writers keep changing it", remedy="run it again")

    def _writer(self, table: Table) -> DeltaTable | None:
        try:
            return self._held(self._writers, table)
        except DeltaError:
            if not self._migrated(table):
                raise
            return self._held(self._writers, table)

    def _migrated(self, table: Table) -> bool:
        """Set aside a last log entry that a power cut tore: it was never forced to the disk, so never acknowledged."""
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
            self._path(table), schema_of(table), mode="ignore", partition_by=list(table.partitions), name=table.name,
            description=table.about, configuration=PROPERTIES, storage_options=self.options or None,
        )  # fmt: skip
        handle = self._writer(table)
        assert handle is not None, f"table {table.name} was just created"
        return handle

    def _force(self, table: Table, before: int) -> None:
        """Force the commits after version `before`, and what came with them, to the disk: Delta itself does not."""
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
        """Whether the table was ever written."""
        with _said(table), self._reading:
            return self._held(self._readers, table) is not None

    def as_written(self, table: Table) -> Table:
        """The table with the columns and the revision it was written with, by which its rows can be read; as it is
        where nobody wrote it yet."""
        with _said(table), self._reading:
            handle = self._held(self._readers, table)
            return table if handle is None or revision_of(handle) == table.revision else as_written(table, handle)

    def is_stale(self, table: Table) -> bool:
        """Whether the table was written by another revision than this release's."""
        return self.as_written(table).revision != table.revision

    def last(self, table: Table, stream: str) -> int:
        """The number of the last batch of `stream` in the table; -1 where there is none."""
        with _said(table), self._reading:
            handle = self._held(self._readers, table)
            return -1 if handle is None else last_batch(handle, stream)

    def chains(self, table: Table) -> list[str]:
        """The chains that have rows in the table."""
        return sorted({file.chain for file in self._files(table)})

    def files(self, table: Table, chain: str | None = None) -> list[str]:
        """Addresses of the table's Parquet files as of now, in the order of their rows."""
        return [self.address(table, file) for file in self._files(table, chain)]

    def address(self, table: Table, file: Written) -> str:
        """The address of one file of a table."""
        return f"{self._path(table)}/{file.path}"

    def entries(self, table: Table) -> list[Written]:
        """The table's files as of now with what the log says of them, in the order of their rows."""
        return self._files(table)

    def examine(self, table: Table, file: Written) -> Iterator[int]:
        """Compare a file with its checksums: how many bytes each time. Damaged where one of them differs."""
        with _said(table):
            yield from examined(self._folder(table), file.path)

    def count(self, table: Table, chain: str | None = None) -> int:
        """How many rows the table has, of one chain or of all; from the log, no file is opened."""
        return rows_of(self._files(table, chain))

    def scan(self, table: Table, *, chain: str | None = None, heights: Iterable[Span] | None = None) -> pl.LazyFrame:
        """The rows as of now as a lazy frame, of one chain or of all; a table nobody wrote yet has none.

        `heights` says at which of them rows are wanted: files and row groups that have none are not read; the filter is
        the caller's. Beside each raw stands its `_dec`, which costs nothing where nobody asks for it.
        """
        wanted = None if heights is None else Spans(heights)
        # By a list of files, not by the handle: that moves on to newer versions under a frame nobody has collected yet.
        files = [file for file in self._files(table, chain) if wanted is None or wanted & [Span(file.first, file.last)]]
        return with_decimals(frame(table, lambda names: self._batches(table, files, names, wanted)), table)

    def of_accounts(
        self,
        table: Table,
        chain: str,
        accounts: Sequence[str] | Sequence[int],
        columns: Sequence[str] | None = None,
    ) -> pl.LazyFrame:
        """The rows that accounts have in a table by account, read now: a few row groups of their buckets' files, each
        file opened once. `columns` are those to read, default all. As with `scan`, beside each raw stands its
        `_dec`."""
        import polars as pl

        files, folder = self._files(table, chain), self._folder(table)
        buckets: dict[int, list[Any]] = {}
        for account in accounts:
            buckets.setdefault(bucket(account), []).append(account)
        with _said(table):
            if self.is_local:
                self._footers.prefetch(lambda: (files, folder))
            parts = [
                history(table, chosen(files, chain, number), own, columns or table.names, folder, self._footers)
                for number, own in buckets.items()
            ]
            none = history(table, [], [], columns or table.names, folder, self._footers)
        frame = pl.from_arrow(pa.concat_tables([none, *parts]))
        assert isinstance(frame, pl.DataFrame)
        return with_decimals(frame.lazy(), table, columns or ())

    def count_transactions(self, table: Table, chain: str, account: str, most: int) -> int:
        """In how many transactions an account's rows of a table by account lie; no further once above `most`."""
        with _said(table):
            files = self._files(table, chain, bucket(account))
            return count_places(files, account, most, self._folder(table), self._footers)

    def window(self, table: Table, chain: str, span: Span) -> pa.Table:
        """A chain's rows at some heights, in the table's order. Without Polars: loading that takes longer than this."""
        files = [file for file in self._files(table, chain) if file.first <= span.last and file.last >= span.first]
        parts = []
        for batch in self._batches(table, files, table.names):
            heights = numbers(batch.column("height"))
            assert heights is not None, "heights are integers"
            inside = (heights >= span.first) & (heights <= span.last)
            parts.append(pa.table(batch) if inside.all() else pa.table(batch).filter(pa.array(inside)))
        return in_order(table, pa.concat_tables(parts)) if parts else table.schema().empty_table()

    def windows(self, tables: Sequence[Table], chain: str, rows: int) -> Iterator[dict[str, pa.Table]]:
        """A chain's rows of some tables by their names, a span of heights of about `rows` rows after the other."""
        files = {table.name: (table, self._files(table, chain)) for table in tables}
        yield from windows(files, lambda table, some: self._batches(table, some, table.names), rows)

    def _batches(
        self, table: Table, files: list[Written], columns: list[str], heights: Spans | None = None
    ) -> Iterator[pa.RecordBatch]:
        with _said(table):
            yield from read(table, files, columns, self._folder(table), heights)

    def _files(self, table: Table, chain: str | None = None, bucket: int | None = None) -> list[Written]:
        with _said(table), self._reading:
            handle = self._held(self._readers, table)
            if handle is None:
                return []
            known = self._lists.get(table.name)
            if known is None or known[0] != handle.version():
                known = self._lists[table.name] = (handle.version(), revision_of(handle), listed(handle))
        if known[1] != table.revision:
            raise StaleTable(table.name, known[1], table.revision)
        return chosen(known[2], chain, bucket)

    def _held(self, handles: dict[str, DeltaTable], table: Table) -> DeltaTable | None:
        """The handle for a table, brought to its newest version; None where nobody wrote it yet."""
        if table.name in handles:
            if not self._is_newest(table, handles[table.name].version()):
                handles[table.name].update_incremental()
        elif self.is_local and not Path(self._path(table), "_delta_log").exists():
            return None
        else:
            try:
                handles[table.name] = DeltaTable(self._path(table), storage_options=self.options or None)
            except TableNotFoundError:
                return None
        return handles[table.name]

    def _is_newest(self, table: Table, version: int) -> bool:
        """Whether no commit follows: a local log is asked by name, which takes a hundredth of listing it.

        A log is cleaned from its oldest entry on: where the version's own entry still is, so is the one after it.
        """
        if not self.is_local:
            return False
        own, next_ = (Path(self._path(table), "_delta_log", f"{number:020}.json") for number in (version, version + 1))
        return own.exists() and not next_.exists()

    def _folder(self, table: Table) -> Folder | Bucket:
        if self.is_local:
            return Folder(Path(self._path(table)))
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return Bucket(PyFileSystem(DeltaStorageHandler(self._path(table), self.options)))

    def _path(self, table: Table) -> str:
        return f"{self.uri}/{table.name}"


def _each(rows: Any) -> Iterable[Any]:
    return [rows] if isinstance(rows, pa.Table) else rows


@contextmanager
def _said(table: Table) -> Iterator[None]:
    """Errors of the libraries below in our own words."""
    try:
        yield
    except Damaged as error:
        raise error if error.table else Damaged(error.path, error.reason, table.name) from None
    except (DeltaError, OSError, pa.ArrowException) as error:
        text = str(error)
        if any(sign in text for sign in ("No space left", "os error 28", "Disk quota exceeded")):
            raise StorageFull("lake") from error
        if any(sign in text for sign in ("Too many open files", "os error 24")):
            raise TooManyFiles("lake") from error
        raise StoreError("lake", f"table {table.name}: {text.strip().splitlines()[0][:300]}") from error
