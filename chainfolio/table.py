"""A table's definition: columns, key, partitions, sort order and decoder revision.

A type is one of `text` (VARCHAR, canonical form), `int` (INTEGER 32), `long` (INTEGER 64), `bool`, `time` (UTC
microseconds), `bytes` (BINARY), `raw` (exactly 32 bytes big-endian: exact for all 256 bits, and it sorts). Frames and
SQL views show a `<name>_dec` DECIMAL(38,0) beside each raw, null where it does not fit; it is computed, not stored.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

BUCKETS = 64


@dataclass(frozen=True, slots=True)
class Column:
    """One column: name, type, description, and whether it may be null."""

    name: str
    type: str
    description: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """One table. `key` identifies a row for ever.

    `order` sorts rows in files; `revision` rises when `order` or their decoder changes. `group_rows` is how many rows
    of a bucket are read together; 0: chosen by their size.
    """

    name: str
    description: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    order: tuple[str, ...]
    partitions: tuple[str, ...] = ("chain",)
    revision: int = 1
    derived_from: str = ""
    group_rows: int = 0

    def __hash__(self) -> int:
        # A hash of all columns takes longer than the lookups that need it.
        return hash((self.name, self.revision))

    @property
    def names(self) -> list[str]:
        """Column names in the order of files."""
        return [column.name for column in self.columns]

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the files."""
        return _schema(self)

    def filled(
        self, chain: str, names: Sequence[str], rows: Sequence[Sequence[object]], **constant: object
    ) -> pa.Table:
        """Return rows of a chain as a table; each row has the columns `names` in this order.

        Args:
            chain: The key of the chain.
            names: The columns of `rows`.
            rows: Tuples of values.
            constant: Values of columns that are the same in each row; other columns are null.
        """
        import pyarrow as pa

        constant["chain"] = chain
        columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(names, ())
        arrays = [
            pa.array(columns[each.name], each.type)
            if each.name in columns
            else pa.repeat(pa.scalar(constant.get(each.name), each.type), len(rows))
            for each in self.schema()
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema())


@cache
def _schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a table: times are microseconds in UTC, raw amounts bytes."""
    import pyarrow as pa

    types: dict[str, pa.DataType] = {
        "text": pa.string(),
        "int": pa.int32(),
        "long": pa.int64(),
        "bool": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
        "bytes": pa.binary(),
        "raw": pa.binary(),
    }
    return pa.schema([pa.field(column.name, types[column.type], column.nullable) for column in table.columns])


def bucket(account: str | int) -> int:
    """Return the bucket of an account (CRC-32 of its canonical text) or validator (its index), modulo 64.

    Stable forever: it is in file paths.
    """
    return account % BUCKETS if isinstance(account, int) else zlib.crc32(account.encode()) % BUCKETS
