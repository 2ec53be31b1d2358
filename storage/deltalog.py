"""Read and write the file entries of a Delta table's log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction

from chainfolio.errors import Locked, StaleTable
from chainfolio.storage.parquet import LakeFile
from chainfolio.table import Table

REVISION = "chainfolio.revision"
# Entries of a log that are older than this are deleted at a checkpoint, every 100 commits. By default they stay for 30
# days: 52,000 entries of a chain with four blocks a second.
LOG_RETENTION = "delta.logRetentionDuration"
# So long, checkpoints name files that were replaced; by default for a week, in which such a chain replaces 150,000.
REMOVE_RETENTION = "delta.deletedFileRetentionDuration"
# Some readers of Delta take a column without statistics for null in every row, and filters on it find nothing, unless
# the table names the columns that have statistics.
PROPERTIES = {"delta.dataSkippingStatsColumns": "height"}
DEFAULT_RETENTION_H = 24
# Files below this are merged with their neighbours.
SMALL_BYTES = 64 * 2**20
UNMOVED = CommitProperties(max_commit_retries=0)  # of a commit that is not moved to a version with newer commits
MUCH_LARGER = 4  # a file that is so many times larger than the newer ones together is not merged with them


def retention_properties(hours: int) -> dict[str, str]:
    """Return the properties that limit a log: entries and names of replaced files stay for some hours."""
    return dict.fromkeys((LOG_RETENTION, REMOVE_RETENTION), f"interval {hours} hours")


def files_of(handle: DeltaTable | None) -> list[LakeFile]:
    """Return the files of the handle's version in the order of their rows; empty without a handle."""
    if handle is None:
        return []
    entries = pa.table(handle.get_add_actions(flatten=True))
    columns = ("path", "size_bytes", "num_records", "partition.chain", "partition.bucket", "min.height", "max.height")
    files = [
        LakeFile(
            path=unquote(row["path"]),
            size=row["size_bytes"],
            rows=row["num_records"],
            chain=row["partition.chain"],
            bucket=row.get("partition.bucket"),
            first=row["min.height"],
            last=row["max.height"],
        )
        for row in entries.select([name for name in columns if name in entries.column_names]).to_pylist()
    ]
    return sorted(files, key=lambda file: (file.chain, file.bucket or 0, file.first, file.last, file.path))


def needed_entries(names: Iterable[str], version: int | None) -> list[str]:
    """Return the names in a log that a version needs, sorted: its last checkpoint and all later entries.

    The pointer to the last checkpoint is left out, because it may name a newer version. Without it, the log is listed.

    Args:
        names: All names in the folder of the log.
        version: A version of the table; None for all entries and checkpoints.
    """
    numbers = {name: int(name[:20]) for name in names if name[:20].isdigit() and name.endswith((".json", ".parquet"))}
    if version is None:
        return sorted(numbers)
    up_to = {name: number for name, number in numbers.items() if number <= version}
    first = max((number for name, number in up_to.items() if ".checkpoint." in name), default=0)
    return sorted(name for name, number in up_to.items() if number >= first)


def entry_of(file: LakeFile, changes: bool = True) -> AddAction:
    """Return the log's entry that adds a file; `changes` is False if the table's rows stay the same."""
    statistics = {
        "numRecords": file.rows,
        "minValues": {"height": file.first},
        "maxValues": {"height": file.last},
        "nullCount": {"height": 0},
    }
    now = time.time_ns() // 1_000_000
    return AddAction(file.path, file.size, partition_of(file), now, changes, json.dumps(statistics))


def partition_of(file: LakeFile) -> dict[str, str | None]:
    """Return the values of the partition columns of a file."""
    return {"chain": file.chain} if file.bucket is None else {"chain": file.chain, "bucket": str(file.bucket)}


def schema_of(table: Table) -> Schema:
    """Return the table's columns with its revision as metadata of the first one.

    A commit replaces the schema together with the rows; it does not replace the properties of a Delta table.
    """
    schema = table.schema()
    return Schema.from_arrow(schema.set(0, schema.field(0).with_metadata({REVISION: str(table.revision)})))


def revision_of(handle: DeltaTable) -> int:
    """Return the revision of a stored table's schema; 0 if it has none."""
    return int(handle.schema().fields[0].metadata.get(REVISION, 0))


def check_revision(table: Table, handle: DeltaTable) -> None:
    """Check that a stored table has the revision of this release.

    Raises:
        StaleTable: It has another one.
    """
    revision = revision_of(handle)
    if revision != table.revision:
        raise StaleTable(table.name, revision, table.revision)


def batch_mark(stream: str, batch: int) -> CommitProperties:
    """Return the properties of a commit that make `batch` the last batch of a stream.

    Delta does not compare them: such a commit must not be moved to a newer version, so it fails after any other one.
    """
    return CommitProperties(max_commit_retries=0, app_transactions=[Transaction(app_id=stream, version=batch)])


def check_replaced(handle: DeltaTable, table: Table, added: set[str], removed: set[str]) -> bool:
    """Return True if a table has all files that a commit removes, and False if it made this commit before.

    An object store may have made a commit although its answer was lost.

    Raises:
        Locked: Another process removed some of them: this one was frozen, and lost the lock of the chain.
    """
    stored = {file.path for file in files_of(handle)}
    if removed <= stored:
        return True
    if added and added <= stored and not removed & stored:
        return False
    message = f"table {table.name}: another process replaced its files meanwhile"
    raise Locked("lake", message, remedy="nothing: what is left to do is done again")


def last_batch(handle: DeltaTable, stream: str) -> int:
    """Return the number of the last committed batch of a stream; -1 if there is none."""
    batch = handle.transaction_version(stream)
    return -1 if batch is None else batch


def select_files(files: list[LakeFile], chain: str | None, bucket: int | None = None) -> list[LakeFile]:
    """Return the files of a chain and bucket; None selects all of them."""
    return [file for file in files if chain in (None, file.chain) and bucket in (None, file.bucket)]


def total_rows(files: list[LakeFile]) -> int:
    """Return the number of rows in the files."""
    return sum(file.rows for file in files)


def total_size(files: list[LakeFile]) -> int:
    """Return the size of the files in bytes."""
    return sum(file.size for file in files)


def mergeable(files: list[LakeFile], small: int) -> Iterator[list[LakeFile]]:
    """Yield runs of adjacent small files of one bucket that can be merged.

    A run ends when its merged file is not small any more.

    Args:
        files: The files in the order of their rows.
        small: Size in bytes below which a file is small.
    """
    run: list[LakeFile] = []
    for file in files:
        if run and (file.bucket != run[0].bucket or file.size >= small or sum(member.size for member in run) >= small):
            if len(run) > 1:
                yield run
            run = []
        if file.size < small:
            run.append(file)
    if len(run) > 1:
        yield run


def crowded(files: list[LakeFile], small: int, max_files: int) -> Iterator[list[LakeFile]]:
    """Yield runs of files to merge, so that few small files stay.

    A run that fills a large file, and has newer files after it, is merged whole. Of the newest run of a bucket, at most
    `max_files` files stay: its newest files are merged. An older file that is much larger than all newer ones together
    stays as it is, so that a row is rewritten a few times and not at each merge.

    Args:
        files: The files in the order of their rows.
        small: Size in bytes below which a file is small.
        max_files: Number of small neighbours that are not merged.
    """
    newest = {file.bucket: file for file in files}
    for run in mergeable(files, small):
        if run[-1] is not newest[run[-1].bucket] and total_size(run) >= small:
            yield run
            continue
        if len(run) <= max_files:
            continue
        start, size = len(run) - 2, total_size(run[-2:])
        while start and (start >= max_files or run[start - 1].size <= MUCH_LARGER * size):
            start -= 1
            size += run[start].size
        yield run[start:]


def commit_groups(runs: Iterable[list[LakeFile]]) -> Iterator[list[list[LakeFile]]]:
    """Group runs that are merged in one commit, of about SMALL_BYTES or more; the last may be smaller.

    A commit costs as much as writing a small file.
    """
    group: list[list[LakeFile]] = []
    for run in runs:
        group.append(run)
        if sum(map(total_size, group)) >= SMALL_BYTES:
            yield group
            group = []
    if group:
        yield group
