"""The lake: finalised rows for ever, one Delta table per `chainfolio.tables.Table`, plain Parquet inside.

Any number of readers; one writer a chain (the caller holds the chain's lock), several chains at once. A commit is
atomic and carries the mark `(stream, batch)`, so that a batch which is written again after a crash changes nothing. A
local file is forced to the disk before the commit that names it, and the commit before the call returns.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from chainfolio.blocks import Span
from chainfolio.errors import Busy, StaleTable, StorageFull, StoreError
from chainfolio.tables import TABLES, Column, Table, bucket
from storage.arrays import numbers
from storage.decimals import with_decimals
from storage.disk import sync
from storage.history import Footers, count_places, history
from storage.parquet import Bucket, Folder, Written, check, in_order, read, write
from storage.windows import windows

if TYPE_CHECKING:
    import polars as pl

ATTEMPTS = 8
REVISION = "chainfolio.revision"
RETENTION_H = 168
# A reader of Delta may take a column of which a file's entry says nothing for one that is null in every row, and so
# finds nothing by it, unless the table names the columns that its entries do describe.
PROPERTIES = {"delta.dataSkippingStatsColumns": "height"}
# What each type of the log may be in a table.
KINDS = {
    "string": ("text",), "integer": ("int",), "long": ("long",), "boolean": ("bool",), "timestamp": ("time",),
    "binary": ("bytes", "raw"),
}  # fmt: skip
# Files below this are merged with their neighbours.
SMALL_BYTES = 64 * 2**20


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
                self._commit(table, added, [], _mark(stream, batch))
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
            self._commit(table, added, removed, None if batch is None else _mark(stream, batch))
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
                    self._path(table), _schema(table), [_add(file) for file in added], mode="overwrite",
                    partition_by=list(table.partitions), name=table.name, description=table.about,
                    configuration=PROPERTIES, storage_options=self.options or None,
                )  # fmt: skip
                self._force(table, -1 if handle is None else handle.version())

    def rewind(self, chain: str, height: int) -> None:
        """Delete what every table holds of a chain from `height` on. For mending; running it again does no harm."""
        for table in TABLES.values():
            with _said(table):
                hit = [file for file in self._newest(table, chain) if file.last >= height]
                if hit:
                    self._commit(table, write(table, self._below(table, hit, height), self._folder(table)), hit)

    def _below(self, table: Table, files: list[Written], height: int) -> Iterator[pa.Table]:
        import pyarrow.compute as pc

        for rows in read(table, [file for file in files if file.first < height], table.names, self._folder(table).open):
            kept = rows.filter(pc.less(rows["height"], height))
            if kept.num_rows:
                yield kept

    def compact(
        self, table: Table, chain: str, *, small: int = SMALL_BYTES, retention_hours: int = RETENTION_H
    ) -> CompactReport:
        """Merge small files into large ones in the table's order, then delete files that nobody has named for
        `retention_hours`: longer than any reader reads."""
        with _said(table):
            self._is_there(table, "", None)
            before = self._newest(table, chain)
            for runs in _portions(_mergeable(before, small)):
                self._merge(table, runs)
            after = self._newest(table, chain)
            deleted = self._vacuum(table, retention_hours)
        return CompactReport(len(before), len(after), _size(before), _size(after), _rows(after), deleted)

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
        assert _rows(merged) == _rows(old), "no row is lost or doubled"
        self._commit(table, merged, old, changes=False)

    def _in_order(self, table: Table, files: list[Written]) -> Iterator[Any]:
        """The rows of some files in the table's order; files that do not follow each other are sorted in memory."""
        rows = read(table, files, table.names, self._folder(table).open)
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
            _check_revision(table, handle)
            return batch is not None and _last(handle, stream) >= batch

    def _newest(self, table: Table, chain: str, bucket: int | None = None) -> list[Written]:
        with self._writing[table.name]:
            return _chosen(_listed(self._writer(table)), chain, bucket)

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
        actions: list[AddAction | RemoveAction] = [_add(file, changes) for file in added]
        actions += [RemoveAction(file.path, changes, now, file.size, _partition(file)) for file in removed]
        with self._writing[table.name]:
            for _ in range(ATTEMPTS):
                # Not brought up to date first: what the newer commits of others mean for this one is looked at below.
                handle = self._writers.get(table.name) or self._writer(table)
                before = -1 if handle is None else handle.version()
                handle = handle or self._created(table)
                _check_revision(table, handle)
                try:
                    _describe(handle)
                    handle.create_write_transaction(
                        actions, "append", _schema(table), list(table.partitions), commit_properties=mark
                    )
                except CommitFailedError:
                    self._writers.pop(table.name, None)
                    continue
                self._force(table, before)
                return
        raise Busy("lake", f"table {table.name}: other writers keep changing it", cure="run it again")

    def _writer(self, table: Table) -> DeltaTable | None:
        try:
            return self._held(self._writers, table)
        except DeltaError:
            if not self._mended(table):
                raise
            return self._held(self._writers, table)

    def _mended(self, table: Table) -> bool:
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
            self._path(table), _schema(table), mode="ignore", partition_by=list(table.partitions), name=table.name,
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
            return table if handle is None or _revision(handle) == table.revision else _as_written(table, handle)

    def is_stale(self, table: Table) -> bool:
        """Whether the table was written by another revision than this release's."""
        return self.as_written(table).revision != table.revision

    def last(self, table: Table, stream: str) -> int:
        """The number of the last batch of `stream` in the table; -1 where there is none."""
        with _said(table), self._reading:
            handle = self._held(self._readers, table)
            return -1 if handle is None else _last(handle, stream)

    def chains(self, table: Table) -> list[str]:
        """The chains that have rows in the table."""
        return sorted({file.chain for file in self._files(table)})

    def files(self, table: Table, chain: str | None = None) -> list[str]:
        """Addresses of the table's Parquet files as of now, in the order of their rows."""
        return [self._address(table, file) for file in self._files(table, chain)]

    def count(self, table: Table, chain: str | None = None) -> int:
        """How many rows the table has, of one chain or of all; from the log, no file is opened."""
        return _rows(self._files(table, chain))

    def scan(self, table: Table, *, chain: str | None = None) -> pl.LazyFrame:
        """The rows as of now as a lazy frame, of one chain or of all; a table nobody wrote yet has none.

        Beside each raw stands its `_dec`, which costs nothing where nobody asks for it.
        """
        import polars as pl

        empty = pl.DataFrame(pl.from_arrow(table.schema().empty_table()))
        files = self.files(table, chain)
        if not files:
            return with_decimals(empty.lazy(), table)
        # By a list of files, not by the handle: that moves on to newer versions under a frame nobody has collected yet.
        rows = pl.scan_parquet(
            files,
            schema={name: kind for name, kind in empty.schema.items() if name not in table.partitions},
            hive_partitioning=True,
            hive_schema={name: empty.schema[name] for name in table.partitions},
            storage_options=self.options or None,
        ).select(table.names)
        return with_decimals(rows, table)

    def account_transfers(self, chain: str, account: str, columns: Sequence[str] | None = None) -> pl.LazyFrame:
        """As `of_account`, of `account_transfers`."""
        return self.of_account(TABLES["account_transfers"], chain, account, columns)

    def of_account(self, table: Table, chain: str, account: str, columns: Sequence[str] | None = None) -> pl.LazyFrame:
        """One account's rows of a table by account, as `of_accounts`."""
        return self.of_accounts(table, chain, [account], columns)

    def of_accounts(
        self, table: Table, chain: str, accounts: Sequence[str], columns: Sequence[str] | None = None
    ) -> pl.LazyFrame:
        """The rows that accounts have in a table by account, read now: a few row groups of their buckets' files, each
        file opened once. `columns` are those to read, default all. As with `scan`, beside each raw stands its
        `_dec`."""
        import polars as pl

        files, folder = self._files(table, chain), self._folder(table)
        buckets: dict[int, list[str]] = {}
        for account in accounts:
            buckets.setdefault(bucket(account), []).append(account)
        with _said(table):
            if self.is_local:
                self._footers.foresee(lambda: (files, folder))
            parts = [
                history(table, _chosen(files, chain, number), own, columns or table.names, folder, self._footers)
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
            return count_places(table, files, account, most, self._folder(table), self._footers)

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

    def _batches(self, table: Table, files: list[Written], columns: list[str]) -> Iterator[pa.RecordBatch]:
        with _said(table):
            yield from read(table, files, columns, self._folder(table).open)

    def _files(self, table: Table, chain: str | None = None, bucket: int | None = None) -> list[Written]:
        with _said(table), self._reading:
            handle = self._held(self._readers, table)
            if handle is None:
                return []
            known = self._lists.get(table.name)
            if known is None or known[0] != handle.version():
                known = self._lists[table.name] = (handle.version(), _revision(handle), _listed(handle))
        if known[1] != table.revision:
            raise StaleTable(table.name, known[1], table.revision)
        return _chosen(known[2], chain, bucket)

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

    def _address(self, table: Table, file: Written) -> str:
        return f"{self._path(table)}/{file.path}"


def _each(rows: Any) -> Iterable[Any]:
    return [rows] if isinstance(rows, pa.Table) else rows


def _listed(handle: DeltaTable | None) -> list[Written]:
    """The files of the version a handle stands at, in the order of their rows."""
    if handle is None:
        return []
    log = pa.table(handle.get_add_actions(flatten=True))
    facts = ("path", "size_bytes", "num_records", "partition.chain", "partition.bucket", "min.height", "max.height")
    files = [
        Written(
            path=unquote(row["path"]), size=row["size_bytes"], rows=row["num_records"], chain=row["partition.chain"],
            bucket=row.get("partition.bucket"), first=row["min.height"], last=row["max.height"],
        )
        for row in log.select([name for name in facts if name in log.column_names]).to_pylist()
    ]  # fmt: skip
    return sorted(files, key=lambda file: (file.chain, file.bucket or 0, file.first, file.last, file.path))


def _chosen(files: list[Written], chain: str | None, bucket: int | None = None) -> list[Written]:
    return [file for file in files if chain in (None, file.chain) and bucket in (None, file.bucket)]


def _rows(files: list[Written]) -> int:
    return sum(file.rows for file in files)


def _size(files: list[Written]) -> int:
    return sum(file.size for file in files)


def _mergeable(files: list[Written], small: int) -> Iterator[list[Written]]:
    """Runs of neighbouring small files of one bucket, each run cut where it makes a file that is not small any more."""
    run: list[Written] = []
    for file in files:
        if run and (file.bucket != run[0].bucket or file.size >= small or sum(one.size for one in run) >= small):
            if len(run) > 1:
                yield run
            run = []
        if file.size < small:
            run.append(file)
    if len(run) > 1:
        yield run


def _portions(runs: Iterable[list[Written]]) -> Iterator[list[list[Written]]]:
    """Runs that are merged in one commit: many small ones, for a commit costs as much as writing a small file."""
    portion: list[list[Written]] = []
    for run in runs:
        portion.append(run)
        if sum(map(_size, portion)) >= SMALL_BYTES:
            yield portion
            portion = []
    if portion:
        yield portion


def _add(file: Written, changes: bool = True) -> AddAction:
    facts = {
        "numRecords": file.rows,
        "minValues": {"height": file.first},
        "maxValues": {"height": file.last},
        "nullCount": {"height": 0},
    }
    now = time.time_ns() // 1_000_000
    return AddAction(file.path, file.size, _partition(file), now, changes, json.dumps(facts))


def _partition(file: Written) -> dict[str, str | None]:
    return {"chain": file.chain} if file.bucket is None else {"chain": file.chain, "bucket": str(file.bucket)}


def _schema(table: Table) -> Schema:
    """The table's columns with its revision written on the first: a schema is replaced in the same commit as the rows,
    the settings of a Delta table are not."""
    schema = table.schema()
    return Schema.from_arrow(schema.set(0, schema.field(0).with_metadata({REVISION: str(table.revision)})))


def _revision(handle: DeltaTable) -> int:
    return int(handle.schema().fields[0].metadata.get(REVISION, 0))


def _describe(handle: DeltaTable) -> None:
    """Name the columns that entries describe, where an older release left that out; this holds for its entries too."""
    if PROPERTIES.items() - handle.metadata().configuration.items():
        handle.alter.set_table_properties(dict(PROPERTIES))


def _as_written(table: Table, handle: DeltaTable) -> Table:
    """A table in the columns that a handle has."""
    known = {(column.name, column.type): column for column in table.columns}
    columns = []
    for field in handle.schema().fields:
        kinds = KINDS[json.loads(field.type.to_json())]
        same = [known[field.name, kind] for kind in kinds if (field.name, kind) in known]
        columns.append(same[0] if same else Column(field.name, kinds[0], "of another revision", field.nullable))
    names = {column.name for column in columns}
    order = tuple(name for name in table.order if name in names)
    return replace(table, columns=tuple(columns), order=order, revision=_revision(handle))


def _check_revision(table: Table, handle: DeltaTable) -> None:
    found = _revision(handle)
    if found != table.revision:
        raise StaleTable(table.name, found, table.revision)


def _mark(stream: str, batch: int) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(app_id=stream, version=batch)])


def _last(handle: DeltaTable, stream: str) -> int:
    found = handle.transaction_version(stream)
    return -1 if found is None else found


@contextmanager
def _said(table: Table) -> Iterator[None]:
    """Errors of the libraries below in our own words."""
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        text = str(error)
        if any(sign in text for sign in ("No space left", "os error 28", "Disk quota exceeded")):
            raise StorageFull("lake") from error
        raise StoreError("lake", f"table {table.name}: {text.strip().splitlines()[0][:300]}") from error
