"""Convert rows of the tail to and from Arrow IPC streams."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from chainfolio.table import Table


def dump(rows: pa.Table) -> bytes:
    """Return rows as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def load(streams: Iterable[bytes], table: Table) -> pa.Table:
    """Return streams as one table in the table's schema; empty without streams."""
    return load_counted(streams, table)[0]


def load_counted(streams: Iterable[bytes], table: Table) -> tuple[pa.Table, list[int]]:
    """Return streams as `load` does, and the number of rows of each."""
    parts = [pa.ipc.open_stream(stream).read_all() for stream in streams]
    rows = pa.concat_tables(parts).combine_chunks() if parts else table.schema().empty_table()
    return rows, [part.num_rows for part in parts]
