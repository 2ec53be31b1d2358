"""What the log of a Delta table says of its files, and what is written into it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction

from chainfolio.errors import StaleTable
from chainfolio.table import Column, Table
from storage.parquet import Written

REVISION = "chainfolio.revision"
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


def listed(handle: DeltaTable | None) -> list[Written]:
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


def entry_of(file: Written, changes: bool = True) -> AddAction:
    facts = {
        "numRecords": file.rows,
        "minValues": {"height": file.first},
        "maxValues": {"height": file.last},
        "nullCount": {"height": 0},
    }
    now = time.time_ns() // 1_000_000
    return AddAction(file.path, file.size, partition_of(file), now, changes, json.dumps(facts))


def partition_of(file: Written) -> dict[str, str | None]:
    return {"chain": file.chain} if file.bucket is None else {"chain": file.chain, "bucket": str(file.bucket)}


def schema_of(table: Table) -> Schema:
    """The table's columns with its revision written on the first: a schema is replaced in the same commit as the rows,
    the settings of a Delta table are not."""
    schema = table.schema()
    return Schema.from_arrow(schema.set(0, schema.field(0).with_metadata({REVISION: str(table.revision)})))


def revision_of(handle: DeltaTable) -> int:
    return int(handle.schema().fields[0].metadata.get(REVISION, 0))


def describe(handle: DeltaTable) -> None:
    """Name the columns that entries describe, where an older release left that out; this holds for its entries too."""
    if PROPERTIES.items() - handle.metadata().configuration.items():
        handle.alter.set_table_properties(dict(PROPERTIES))


def relax(table: Table, handle: DeltaTable) -> None:
    """Let columns be null that every row of an older release had to have: its rows stay as they are, and other engines
    are told that newer ones may say nothing."""
    optional = {column.name for column in table.columns if column.nullable}
    for field in handle.schema().fields:
        if not field.nullable and field.name in optional:
            handle.alter.drop_column_not_null(field.name)


def as_written(table: Table, handle: DeltaTable) -> Table:
    """A table in the columns that a handle has."""
    known = {(column.name, column.type): column for column in table.columns}
    columns = []
    for field in handle.schema().fields:
        kinds = KINDS[json.loads(field.type.to_json())]
        same = [known[field.name, kind] for kind in kinds if (field.name, kind) in known]
        columns.append(same[0] if same else Column(field.name, kinds[0], "of another revision", field.nullable))
    names = {column.name for column in columns}
    order = tuple(name for name in table.order if name in names)
    return replace(table, columns=tuple(columns), order=order, revision=revision_of(handle))


def check_revision(table: Table, handle: DeltaTable) -> None:
    found = revision_of(handle)
    if found != table.revision:
        raise StaleTable(table.name, found, table.revision)


def mark_of(stream: str, batch: int) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(app_id=stream, version=batch)])


def last_batch(handle: DeltaTable, stream: str) -> int:
    found = handle.transaction_version(stream)
    return -1 if found is None else found


def chosen(files: list[Written], chain: str | None, bucket: int | None = None) -> list[Written]:
    return [file for file in files if chain in (None, file.chain) and bucket in (None, file.bucket)]


def rows_of(files: list[Written]) -> int:
    return sum(file.rows for file in files)


def size_of(files: list[Written]) -> int:
    return sum(file.size for file in files)


def mergeable(files: list[Written], small: int) -> Iterator[list[Written]]:
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


def portions(runs: Iterable[list[Written]]) -> Iterator[list[list[Written]]]:
    """Runs that are merged in one commit: many small ones, for a commit costs as much as writing a small file."""
    portion: list[list[Written]] = []
    for run in runs:
        portion.append(run)
        if sum(map(size_of, portion)) >= SMALL_BYTES:
            yield portion
            portion = []
    if portion:
        yield portion
