"""Writing and reading the lake's Parquet files: their layout, the order of their rows, and the check before all that.

Files are written here and not by the Delta library: its writer shuffles the batches of a stream, takes twice as long,
and forces nothing to the disk before the commit that names the file.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from chainfolio.blocks import Span, Spans
from chainfolio.table import Table
from storage.arrays import are_wide, is_one, limits, numbers
from storage.checksums import Checked, ReadAt, Summed, digest_in, footer
from storage.disk import sync

ROW_GROUP = 1_000_000
# One account's history is a few hundred rows, and a row group is read whole. Twice this takes 1.6 times as long to
# read, and makes files a twelfth smaller, the footers half as large.
ACCOUNT_ROW_GROUP = 2_048
ACCOUNT_GROUP_BYTES = 4 * 2**20  # documents are long
# A file is closed when it is this large; larger ones would make every later merge heavier, not the reading lighter.
FILE_BYTES = 256 * 2**20
# What a stream may hold in memory at once, in rows or in bytes.
GROUP_BYTES = 256 * 2**20
SLICE_ROWS = 65_536
UPLOAD_BYTES = 8 * 2**20
COUNTERS = frozenset({"height", "time", "tx_index", "log_index", "validator", "epoch"})
# High-entropy text: its minimum and maximum prune nothing.
HASHES = frozenset({"hash", "parent", "tx_hash"})


@dataclass(frozen=True, slots=True)
class Written:
    """One finished file: where it is below the table's folder, and what the table's log says about it."""

    path: str
    size: int
    rows: int
    chain: str
    bucket: int | None
    first: int
    last: int

    @property
    def is_summed(self) -> bool:
        """Whether the file has checksums: those that older releases wrote have none."""
        return digest_in(self.path) is not None


class Folder:
    """A table's folder on a local disk. What is closed here is on the disk for good."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._fresh: set[Path] = set()

    @contextmanager
    def create(self, place: str, named: Callable[[], str]) -> Iterator[Any]:
        """A new file to write to, which gets its name when it is closed; forced to the disk then, gone when writing it
        failed."""
        folder = self.root / place
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            self._fresh.update(each for each in folder.parents if each.is_relative_to(self.root.parent))
        written = folder / f"part-{uuid.uuid4()}.tmp"
        with _or_gone(written):
            with written.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            written.rename(folder / named())
        self._fresh.add(folder)

    def settle(self) -> None:
        """Force the names of the new files to the disk too: a commit may name them after this."""
        for folder in sorted(self._fresh):
            sync(folder)
        self._fresh.clear()

    @contextmanager
    def source(self, path: str) -> Iterator[tuple[int, ReadAt]]:
        """The size of a file, and what reads from it."""
        handle = os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield os.fstat(handle).st_size, lambda at, count: os.pread(handle, count, at)
        finally:
            os.close(handle)

    def plain(self, path: str) -> pq.ParquetFile:
        """A file without checksums for reading."""
        return pq.ParquetFile(self.root / path)

    def remove(self, path: str) -> None:
        """Take back a file that nothing names."""
        (self.root / path).unlink(missing_ok=True)


class Bucket:
    """A table's folder in an object store, where a finished file is a durable one."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    @contextmanager
    def create(self, place: str, named: Callable[[], str]) -> Iterator[Any]:
        """A new file to write to: a local one first, for an object cannot get its name when it is closed."""
        with tempfile.TemporaryFile(prefix="chainfolio-") as file:
            yield file
            file.seek(0)
            # Buffered, and in smaller pieces than the buffer: the Delta library's stream takes nothing but bytes.
            with self._filesystem.open_output_stream(f"{place}/{named()}", buffer_size=UPLOAD_BYTES) as stream:
                shutil.copyfileobj(file, stream, UPLOAD_BYTES // 8)

    def settle(self) -> None:
        """Nothing to do."""

    @contextmanager
    def source(self, path: str) -> Iterator[tuple[int, ReadAt]]:
        """The size of a file, and what reads from it."""
        with self._filesystem.open_input_file(path) as file:
            yield file.size(), lambda at, count: file.read_at(count, at)

    def plain(self, path: str) -> pq.ParquetFile:
        """A file without checksums for reading."""
        return pq.ParquetFile(path, filesystem=self._filesystem)

    def remove(self, path: str) -> None:
        """Take back a file that nothing names."""
        self._filesystem.delete_file(path)


def footer_of(folder: Folder | Bucket, path: str) -> pq.FileMetaData:
    """The footer of a file; Damaged where it is not the one that was written."""
    if digest_in(path) is None:
        with folder.plain(path) as parquet:
            return parquet.metadata
    with folder.source(path) as (size, read_at):
        return footer(path, size, read_at)


@contextmanager
def opened(folder: Folder | Bucket, path: str, known: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
    """A file for reading, whose every byte is compared with its checksum; with the footer it has where that is known.

    A file of an older release has no checksums, and is read as it is.
    """
    if digest_in(path) is None:
        with folder.plain(path) as parquet:
            yield parquet
        return
    with folder.source(path) as (size, read_at):
        known = known or footer(path, size, read_at)
        # What is read lies side by side, and comes in few large pieces.
        yield pq.ParquetFile(Checked(path, size, read_at, known), metadata=known, pre_buffer=True)


def examined(folder: Folder | Bucket, path: str) -> Iterator[int]:
    """Compare all of a file with its checksums, a few blocks at a time: how many bytes each time. Damaged where one of
    them differs."""
    with folder.source(path) as (size, read_at):
        yield from Checked(path, size, read_at, footer(path, size, read_at)).blocks()


@contextmanager
def _or_gone(place: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:  # whatever stopped it: half a file is nobody's
        place.unlink(missing_ok=True)
        raise


def check(table: Table, rows: Any) -> None:
    """Assert that rows have the columns, types and lengths that `table` promises, and no value missing."""
    wanted = table.schema()
    assert rows.schema.equals(wanted), (
        f"rows do not have the columns of {table.name}: {_difference(rows.schema, wanted)}"
    )
    for column in table.columns:
        values = rows.column(column.name)
        assert column.nullable or not values.null_count, f"{table.name}.{column.name} must be known in every row"
        if column.type == "raw" and len(values) > values.null_count:
            assert are_wide(values, 32), f"{table.name}.{column.name}: a raw has exactly 32 bytes"


def _difference(found: Any, wanted: Any) -> str:
    for at, field in enumerate(wanted):
        have = found.field(at) if at < len(found) else "nothing"
        if not field.equals(have):
            return f"column {at} is {have}, wanted {field}"
    return f"{len(found)} columns instead of {len(wanted)}"


def write(table: Table, batches: Iterable[Any], folder: Folder | Bucket) -> list[Written]:
    """Write a stream of rows as files of one chain (and bucket) each, in bounded memory. Nothing names them yet."""
    written: list[Written] = []
    file: _File | None = None
    try:
        for chain, bucket, rows in _pieces(table, batches):
            if file is not None and not file.takes(chain, bucket):
                written.append(file.close())
                file = None
            if file is None:
                file = _File(table, chain, bucket, folder)
            file.add(rows)
        if file is not None:
            written.append(file.close())
    except BaseException:  # whatever stopped it: half a file is nobody's
        if file is not None:
            file.abandon()
        for done in written:
            folder.remove(done.path)
        raise
    folder.settle()
    return written


def _pieces(table: Table, batches: Iterable[Any]) -> Iterator[tuple[str, int | None, pa.Table]]:
    """Rows in the table's order, of one chain and bucket at a time."""
    for rows in _collected(_tables(table, batches)):
        for chain, mine in _by_chain(rows):
            if "bucket" in table.partitions:
                for bucket, part in _by_bucket(_sorted(table, mine, "bucket")):
                    yield chain, bucket, part
            else:
                yield chain, None, in_order(table, mine)


def _by_chain(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    if is_one(rows["chain"]):
        yield rows["chain"][0].as_py(), rows
        return
    import pyarrow.compute as pc

    for chain in pc.unique(rows["chain"]).to_pylist():
        yield chain, rows.filter(pc.equal(rows["chain"], chain))


def _by_bucket(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    import pyarrow.compute as pc

    runs = pc.run_end_encode(rows["bucket"].combine_chunks())
    start = 0
    for bucket, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield bucket, rows.slice(start, end - start)
        start = end


def _collected(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Enough rows for one row group, or for one sort."""
    waiting: list[pa.Table] = []
    count = size = 0
    for rows in tables:
        waiting.append(rows)
        count += rows.num_rows
        size += rows.nbytes
        if count >= ROW_GROUP or size >= GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, count, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


def _tables(table: Table, batches: Iterable[Any]) -> Iterator[pa.Table]:
    for rows in batches:
        check(table, rows)
        if rows.num_rows:
            yield rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])


def in_order(table: Table, rows: pa.Table) -> pa.Table:
    """Rows in the table's order."""
    return rows if _in_order(table, rows) else _sorted(table, rows)


def _in_order(table: Table, rows: pa.Table) -> bool:
    """Whether rows lie in the table's order already, as they do when they come from a node."""
    tied = np.ones(max(0, len(rows) - 1), np.bool_)
    for name in table.order:
        if name in table.partitions:
            continue
        falls, same = _steps(rows[name])
        if (falls & tied).any():
            return False
        tied &= same
        if not tied.any():
            return True
    return True


def _steps(values: pa.ChunkedArray) -> tuple[Any, Any]:
    """Of each row but the first, whether it falls below the one before it, and whether it says the same."""
    plain = numbers(values)
    if plain is not None:
        return plain[1:] < plain[:-1], plain[1:] == plain[:-1]
    import pyarrow.compute as pc

    flat = values.combine_chunks()
    before, after = flat.slice(0, max(0, len(flat) - 1)), flat.slice(1)
    return tuple(
        pc.fill_null(found, False).to_numpy(zero_copy_only=False)
        for found in (pc.less(after, before), pc.equal(before, after))
    )


def _sorted(table: Table, rows: pa.Table, *first: str) -> pa.Table:
    names = [*first, *(name for name in table.order if name not in table.partitions)]
    return rows.sort_by([(name, "ascending") for name in names])


class _File:
    """One file while it is being written."""

    def __init__(self, table: Table, chain: str, bucket: int | None, folder: Folder | Bucket) -> None:
        assert chain.replace("-", "").replace("_", "").isalnum(), f"not the key of a chain: {chain!r}"
        self._chain, self._bucket, self._group_rows = chain, bucket, table.group_rows
        place = f"chain={chain}" + ("" if bucket is None else f"/bucket={bucket}")
        self._place = place
        self._inside = [name for name in table.names if name not in table.partitions]
        self._rows, self._first, self._last = 0, 2**63, 0
        self._name = ""
        self._context = folder.create(place, lambda: self._name)
        self._sink = Summed(self._context.__enter__())
        schema = pa.schema([table.schema().field(name) for name in self._inside])
        self._writer = pq.ParquetWriter(self._sink, schema, **_layout(table))

    def takes(self, chain: str, bucket: int | None) -> bool:
        """Whether rows belong in this file too: those of a bucket never do, they were sorted without its rows."""
        return bucket is None and chain == self._chain and self._sink.tell() < FILE_BYTES

    def add(self, rows: pa.Table) -> None:
        """Write rows as one row group, those of a bucket as several small ones."""
        group = ROW_GROUP
        if self._bucket is not None:
            size = max(1, rows.nbytes)
            group = self._group_rows or max(1, min(ACCOUNT_ROW_GROUP, rows.num_rows * ACCOUNT_GROUP_BYTES // size))
        self._writer.write_table(rows.select(self._inside), row_group_size=group)
        first, last = limits(rows["height"])
        self._first, self._last = min(self._first, first), max(self._last, last)
        self._rows += rows.num_rows

    def close(self) -> Written:
        """Finish the file."""
        self._writer.add_key_value_metadata(self._sink.seal())
        self._writer.close()
        self._name = f"part-{uuid.uuid4()}-{self._sink.digest}.parquet"
        self._context.__exit__(None, None, None)
        path, size = f"{self._place}/{self._name}", self._sink.tell()
        return Written(path, size, self._rows, self._chain, self._bucket, self._first, self._last)

    def abandon(self) -> None:
        """Leave nothing behind."""
        error = InterruptedError("the writing of this file failed")
        try:
            self._context.__exit__(InterruptedError, error, None)
        except InterruptedError:
            return


@cache
def _layout(table: Table) -> dict[str, Any]:
    """Compression and encodings. No bloom filters: DuckDB 1.5 answers wrongly from those on binary."""
    encodings: dict[str, str] = {}
    by_account = "bucket" in table.partitions
    silent = set(table.partitions)
    for column in table.columns:
        if column.type == "raw":
            encodings[column.name] = "DELTA_BYTE_ARRAY"  # neighbouring amounts share their leading zeros
        elif column.name in COUNTERS:
            encodings[column.name] = "DELTA_BINARY_PACKED"
        if column.type in ("raw", "bytes") or column.name in HASHES:
            silent.add(column.name)
    inside = [name for name in table.names if name not in table.partitions]
    # Among the rows of one account a hash hardly comes twice, and any range of the other columns is in every row group.
    once = HASHES if by_account else ()
    said = table.order[:2] if by_account else [name for name in inside if name not in silent]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [name for name in inside if name not in encodings and name not in once],
        "column_encoding": encodings,
        "write_statistics": list(said),
        "store_schema": False,
        "write_page_checksum": True,  # for other engines: some of them look
    }


def read(
    table: Table, files: Iterable[Written], columns: list[str], folder: Folder | Bucket, heights: Spans | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of files one after the other, a few thousand at a time, with the columns that stand in their paths.

    With `heights`, only row groups that may have rows at some of them.
    """
    schema = pa.schema([table.schema().field(name) for name in columns])
    inside = [name for name in columns if name not in table.partitions]
    for file in files:
        with opened(folder, file.path) as parquet:
            groups = None if heights is None else _groups(parquet.metadata, heights)
            for part in parquet.iter_batches(SLICE_ROWS, row_groups=groups, columns=inside):
                yield pa.RecordBatch.from_arrays(completed(file, part, schema), schema=schema)


def _groups(footer: pq.FileMetaData, heights: Spans) -> list[int]:
    """The row groups that may have rows at some heights."""
    column = footer.schema.names.index("height")
    found = []
    for group in range(footer.num_row_groups):
        ends = footer.row_group(group).column(column).statistics
        if ends is None or not ends.has_min_max or heights & [Span(ends.min, ends.max)]:
            found.append(group)
    return found


def completed(file: Written, rows: Any, schema: pa.Schema) -> list[Any]:
    """The columns of `schema` from rows of a file; those that are not in it stand in its path."""
    return [
        _typed(rows.column(field.name), field.type)
        if field.name in rows.schema.names
        else pa.repeat(pa.scalar(getattr(file, field.name), field.type), rows.num_rows)
        for field in schema
    ]


def _typed(values: Any, kind: pa.DataType) -> Any:
    return values if values.type == kind else values.cast(kind)
