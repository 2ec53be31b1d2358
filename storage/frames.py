"""Lazy Polars frames over the lake's rows; every file that they read is compared with its checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from chainfolio.table import Table

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


def frame(table: Table, batches: Callable[[list[str]], Iterator[pa.RecordBatch]]) -> pl.LazyFrame:
    """Return a lazy frame that reads only the columns and rows that its query needs.

    Args:
        table: The table, for its column names and types.
        batches: Yields the table's rows with the given columns only.
    """
    import polars as pl
    from polars.io.plugins import register_io_source

    empty = pl.DataFrame(pl.from_arrow(table.schema().empty_table()))

    def parts(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        remaining = rows
        for batch in batches(columns or table.names if columns is None else columns or ["height"]):
            part = pl.DataFrame(pl.from_arrow(batch))
            part = part if columns is None else part.select(columns) if columns else part.select([])
            part = part if predicate is None else part.filter(predicate)
            part = part if remaining is None else part.head(remaining)
            remaining = None if remaining is None else remaining - part.height
            yield part
            if remaining == 0:
                return

    return register_io_source(parts, schema=empty.schema)
