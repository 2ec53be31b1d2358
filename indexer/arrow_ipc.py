"""Rows in the tail are Arrow IPC streams: to bytes and back."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from chainfolio.table import Table


def dump(rows: pa.Table) -> bytes:
    """Rows as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def load(streams: Iterable[bytes], table: Table) -> pa.Table:
    """Some streams as one table in the table's schema; an older release may have written that a column is never null
    that may be null now."""
    schema = table.schema()
    parts = [pa.ipc.open_stream(stream).read_all().cast(schema) for stream in streams]
    return pa.concat_tables(parts).combine_chunks() if parts else schema.empty_table()
