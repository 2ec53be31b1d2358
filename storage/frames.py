"""Rows of the lake as lazy Polars frames that read no byte which was not compared with its checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from chainfolio.table import Table

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


def frame(table: Table, batches: Callable[[list[str]], Iterator[pa.RecordBatch]]) -> pl.LazyFrame:
    """The rows of a table that `batches` gives in the columns it is asked for: those that the query needs."""
    import polars as pl
    from polars.io.plugins import register_io_source

    empty = pl.DataFrame(pl.from_arrow(table.schema().empty_table()))

    def parts(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        left = rows
        for batch in batches(columns or table.names if columns is None else columns or ["height"]):
            part = pl.DataFrame(pl.from_arrow(batch))
            part = part if columns is None else part.select(columns) if columns else part.select([])
            part = part if predicate is None else part.filter(predicate)
            part = part if left is None else part.head(left)
            left = None if left is None else left - part.height
            yield part
            if left == 0:
                return

    return register_io_source(parts, schema=empty.schema)
