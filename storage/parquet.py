"""Write and read the lake's Parquet files: their layout, in bounded memory.

The Delta library's own writer is not used: it shuffles the batches of a stream, takes twice as long, and does not
force files to the disk before the commit that names them.
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
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from chainfolio.blocks import Span, Spans
from chainfolio.storage.arrays import is_constant, limits
from chainfolio.storage.checksums import ChecksumReader, ChecksumWriter, ReadAt, read_footer
from chainfolio.storage.disk import sync
from chainfolio.storage.row_order import COUNTERS, Rows, _sort, check_rows, in_order
from chainfolio.table import Table

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

ROW_GROUP = 1_000_000
# One account's history is a few hundred rows, and a row group is read whole. Twice this takes 1.6 times as long to
# read, and makes files a twelfth smaller, the footers half as large.
ACCOUNT_ROW_GROUP = 2_048
ACCOUNT_GROUP_BYTES = 4 * 2**20  # rows with documents are long
# A file is closed at this size: larger ones make merges slower and reading no faster.
FILE_BYTES = 256 * 2**20
# Limits of what a stream holds in memory.
GROUP_BYTES = 256 * 2**20
SLICE_ROWS = 65_536
UPLOAD_BYTES = 8 * 2**20
# High-entropy text: its minimum and maximum prune nothing.
HASHES = frozenset({"hash", "parent", "tx_hash"})


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A finished file: its path below the table's folder, and its facts in the table's log."""

    path: str
    size: int
    rows: int
    chain: str
    bucket: int | None
    first: int
    last: int


class Folder:
    """A table's folder on a local disk. Closed files survive a power failure."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._fresh: set[Path] = set()

    @contextmanager
    def create(self, directory: str, final_name: Callable[[], str]) -> Iterator[BinaryIO]:
        """Create a file for writing, forced to the disk and renamed when the block ends.

        The block can read what it wrote. The file is deleted if the block raises.

        Args:
            directory: Path below the table's folder.
            final_name: Returns the name of the file; called when the block ends.
        """
        folder = self.root / directory
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            self._fresh.update(each for each in folder.parents if each.is_relative_to(self.root.parent))
        draft = folder / f"part-{uuid.uuid4()}.tmp"
        with _deleted_on_error(draft):
            with draft.open("x+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.rename(folder / final_name())
        self._fresh.add(folder)

    def sync_directories(self, present: Iterable[str] = ()) -> None:
        """Force the directory entries of new files to the disk, so that a commit may name the files.

        Args:
            present: Paths of files that another process may have written and not forced to the disk.
        """
        for folder in {(self.root / path).parent for path in present}:
            self._fresh.update(each for each in (folder, *folder.parents) if each.is_relative_to(self.root.parent))
        for folder in sorted(self._fresh):
            sync(folder)
        self._fresh.clear()

    @contextmanager
    def source(self, path: str) -> Iterator[tuple[int, ReadAt]]:
        """Yield the size of a file, and a function that reads bytes at an offset."""
        handle = os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield os.fstat(handle).st_size, lambda at, count: os.pread(handle, count, at)
        finally:
            os.close(handle)

    def remove(self, path: str) -> None:
        """Delete a file that no commit names; a missing one is ignored."""
        (self.root / path).unlink(missing_ok=True)


class Bucket:
    """A table's folder in an object store, where every finished file is durable."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem

    @contextmanager
    def create(self, directory: str, final_name: Callable[[], str]) -> Iterator[BinaryIO]:
        """Yield a local temporary file, and upload it when the block ends without an error.

        The object gets its name then.
        """
        with tempfile.TemporaryFile(prefix="chainfolio-") as file:
            yield file
            file.seek(0)
            with self._filesystem.open_output_stream(f"{directory}/{final_name()}") as stream:
                shutil.copyfileobj(file, stream, UPLOAD_BYTES)

    def sync_directories(self, present: Iterable[str] = ()) -> None:
        """Do nothing: objects are durable."""

    @contextmanager
    def source(self, path: str) -> Iterator[tuple[int, ReadAt]]:
        """Yield the size of a file, and a function that reads bytes at an offset."""
        with self._filesystem.open_input_file(path) as file:
            yield file.size(), lambda at, count: file.read_at(count, at)

    def remove(self, path: str) -> None:
        """Do nothing: maintenance deletes objects that no commit names, once they are a day old."""


def read_file_footer(folder: Folder | Bucket, path: str) -> pq.FileMetaData:
    """Read the footer of a file.

    Raises:
        CorruptFile: It does not match the digest in the file's name.
    """
    with folder.source(path) as (size, read_at):
        return read_footer(path, size, read_at)


@contextmanager
def open_file(folder: Folder | Bucket, path: str, metadata: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
    """Open a file whose bytes are compared with their checksums when they are read.

    Args:
        metadata: The file's footer, if it was read before.

    Raises:
        CorruptFile: The footer does not match the digest in the file's name.
    """
    with folder.source(path) as (size, read_at):
        metadata = metadata or read_footer(path, size, read_at)
        # Adjacent column chunks are read in few large requests.
        yield pq.ParquetFile(ChecksumReader(path, size, read_at, metadata), metadata=metadata, pre_buffer=True)


def compare_file(folder: Folder | Bucket, path: str) -> Iterator[int]:
    """Compare a whole file with its checksums, and yield the number of bytes of each step.

    Raises:
        CorruptFile: Some bytes do not match.
    """
    with folder.source(path) as (size, read_at):
        yield from ChecksumReader(path, size, read_at, read_footer(path, size, read_at)).blocks()


@contextmanager
def _deleted_on_error(path: Path) -> Iterator[None]:
    """Delete a file if the block ends with an error, which is raised."""
    try:
        yield
    except BaseException:  # also if the block is cancelled
        path.unlink(missing_ok=True)
        raise


def write(table: Table, batches: Iterable[Rows], folder: Folder | Bucket) -> list[LakeFile]:
    """Write a stream of rows as files of one chain (and bucket) each, in bounded memory.

    The files are on the disk, and no commit names them yet. If writing fails, all of them are deleted. Without rows,
    the result is empty.
    """
    finished: list[LakeFile] = []
    file: _File | None = None
    try:
        for chain, bucket, rows in _pieces(table, batches):
            if file is not None and not file.accepts(chain, bucket):
                finished.append(file.close())
                file = None
            if file is None:
                file = _File(table, chain, bucket, folder)
            file.add(rows)
        if file is not None:
            finished.append(file.close())
    except BaseException:  # also if the writing is cancelled
        if file is not None:
            file.abandon()
        for each in finished:
            folder.remove(each.path)
        raise
    folder.sync_directories()
    return finished


def _pieces(table: Table, batches: Iterable[Rows]) -> Iterator[tuple[str, int | None, pa.Table]]:
    """Yield rows of one chain and bucket at a time, in the table's order."""
    for rows in _row_group_sized(_tables(table, batches)):
        for chain, chain_rows in _by_chain(rows):
            if "bucket" in table.partitions:
                for bucket, part in _by_bucket(_sort(table, chain_rows, "bucket")):
                    yield chain, bucket, part
            else:
                yield chain, None, in_order(table, chain_rows)


def _by_chain(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each chain; without a copy if there is one only."""
    if is_constant(rows["chain"]):
        yield rows["chain"][0].as_py(), rows
        return
    import pyarrow.compute as pc

    for chain in pc.unique(rows["chain"]).to_pylist():
        yield chain, rows.filter(pc.equal(rows["chain"], chain))


def _by_bucket(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each bucket; a bucket comes again if its rows are not adjacent."""
    import pyarrow.compute as pc

    runs = pc.run_end_encode(rows["bucket"].combine_chunks())
    start = 0
    for bucket, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield bucket, rows.slice(start, end - start)
        start = end


def _row_group_sized(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield concatenated tables of at least `ROW_GROUP` rows or `GROUP_BYTES`; the last may be smaller."""
    pending: list[pa.Table] = []
    count = size = 0
    for rows in tables:
        pending.append(rows)
        count += rows.num_rows
        size += rows.nbytes
        if count >= ROW_GROUP or size >= GROUP_BYTES:
            yield pa.concat_tables(pending)
            pending, count, size = [], 0, 0
    if pending:
        yield pa.concat_tables(pending)


def _tables(table: Table, batches: Iterable[Rows]) -> Iterator[pa.Table]:
    for rows in batches:
        check_rows(table, rows)
        if rows.num_rows:
            yield rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])


class _File:
    """One file while it is written."""

    def __init__(self, table: Table, chain: str, bucket: int | None, folder: Folder | Bucket) -> None:
        """Begin a file in the folder of a chain and bucket; `close` gives it its name."""
        assert chain.replace("-", "").replace("_", "").isalnum(), f"not the key of a chain: {chain!r}"
        self._chain, self._bucket, self._group_rows = chain, bucket, table.group_rows
        directory = f"chain={chain}" + ("" if bucket is None else f"/bucket={bucket}")
        self._directory = directory
        self._file_columns = [name for name in table.names if name not in table.partitions]
        self._rows, self._first, self._last = 0, 2**63, 0
        self._name = ""
        self._context = folder.create(directory, lambda: self._name)
        self._sink = ChecksumWriter(self._context.__enter__())
        schema = pa.schema([table.schema().field(name) for name in self._file_columns])
        self._writer = pq.ParquetWriter(self._sink, schema, **_layout(table))

    def accepts(self, chain: str, bucket: int | None) -> bool:
        """Return True if rows can be added to this file.

        A bucket's file accepts none: its rows were sorted together.
        """
        return bucket is None and chain == self._chain and self._sink.tell() < FILE_BYTES

    def add(self, rows: pa.Table) -> None:
        """Write rows as one row group; rows of a bucket as several small ones."""
        group = ROW_GROUP
        if self._bucket is not None:
            size = max(1, rows.nbytes)
            group = self._group_rows or max(1, min(ACCOUNT_ROW_GROUP, rows.num_rows * ACCOUNT_GROUP_BYTES // size))
        self._writer.write_table(rows.select(self._file_columns), row_group_size=group)
        first, last = limits(rows["height"])
        self._first, self._last = min(self._first, first), max(self._last, last)
        self._rows += rows.num_rows

    def close(self) -> LakeFile:
        """Finish the file and return its entry."""
        self._writer.add_key_value_metadata(self._sink.seal())
        self._writer.close()
        self._name = f"part-{uuid.uuid4()}-{self._sink.digest}.parquet"
        self._context.__exit__(None, None, None)
        path, size = f"{self._directory}/{self._name}", self._sink.tell()
        return LakeFile(path, size, self._rows, self._chain, self._bucket, self._first, self._last)

    def abandon(self) -> None:
        """Close and delete the file."""
        error = InterruptedError("the writing of this file failed")
        try:
            self._context.__exit__(InterruptedError, error, None)
        except InterruptedError:
            return


@cache
def _layout(table: Table) -> dict[str, Any]:
    """Return the arguments of `pq.ParquetWriter` for a table: compression, encodings and statistics.

    No bloom filters: DuckDB 1.5 gives wrong results with those of binary columns.
    """
    encodings: dict[str, str] = {}
    by_account = "bucket" in table.partitions
    without_statistics = set(table.partitions)
    for column in table.columns:
        if column.type == "raw":
            encodings[column.name] = "DELTA_BYTE_ARRAY"  # neighbouring amounts share their leading zeros
        elif column.name in COUNTERS:
            encodings[column.name] = "DELTA_BINARY_PACKED"
        if column.type in ("raw", "bytes") or column.name in HASHES:
            without_statistics.add(column.name)
    file_columns = [name for name in table.names if name not in table.partitions]
    # Few hashes repeat among the rows of one account, and every row group has any range of the other columns.
    unique_columns = HASHES if by_account else ()
    statistics = table.order[:2] if by_account else [name for name in file_columns if name not in without_statistics]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [name for name in file_columns if name not in encodings and name not in unique_columns],
        "column_encoding": encodings,
        "write_statistics": list(statistics),
        "store_schema": False,
        "write_page_checksum": True,  # some other engines check it
    }


def read(
    table: Table, files: Iterable[LakeFile], columns: list[str], folder: Folder | Bucket, heights: Spans | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files in batches, including the columns that are stored in their paths.

    Args:
        columns: Names of the columns to read.
        heights: Skip row groups without rows at these heights. Other rows of the remaining groups are not filtered.

    Raises:
        CorruptFile: A file does not match its checksums.
    """
    schema = pa.schema([table.schema().field(name) for name in columns])
    file_columns = [name for name in columns if name not in table.partitions]
    for file in files:
        with open_file(folder, file.path) as parquet:
            groups = None if heights is None else _groups(parquet.metadata, heights)
            for part in parquet.iter_batches(SLICE_ROWS, row_groups=groups, columns=file_columns):
                yield pa.RecordBatch.from_arrays(with_path_columns(file, part, schema), schema=schema)


def _groups(footer: pq.FileMetaData, heights: Spans) -> list[int]:
    """Return the row groups that may have rows at some heights."""
    column = column_index(footer, "height")
    groups = []
    for group in range(footer.num_row_groups):
        ends = footer.row_group(group).column(column).statistics
        if ends is None or not ends.has_min_max or heights & [Span(ends.min, ends.max)]:
            groups.append(group)
    return groups


def column_index(footer: pq.FileMetaData, name: str) -> int:
    """Return the index of a column in a file with rows.

    `footer.schema` would do it too, but it and the footer refer to each other: both stay in memory until a full garbage
    collection, which a server makes about never.
    """
    group = footer.row_group(0)
    return next(at for at in range(group.num_columns) if group.column(at).path_in_schema == name)


def with_path_columns(file: LakeFile, rows: Rows, schema: pa.Schema) -> list[Any]:
    """Return the columns of `schema`, in its order, for rows of a file; missing ones come from its path."""
    return [
        _cast(rows.column(field.name), field.type)
        if field.name in rows.schema.names
        else pa.repeat(pa.scalar(getattr(file, field.name), field.type), rows.num_rows)
        for field in schema
    ]


def _cast(values: Any, kind: pa.DataType) -> Any:
    return values if values.type == kind else values.cast(kind)
