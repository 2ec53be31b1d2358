"""Add decimal columns to 32-byte amounts, for readers of the lake with SQL or Polars."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from chainfolio.amounts import MAX_DEC38
from chainfolio.table import Table

if TYPE_CHECKING:
    import polars as pl


def with_decimals(rows: pl.LazyFrame, table: Table, columns: Sequence[str] = ()) -> pl.LazyFrame:
    """Add a DECIMAL(38,0) column `<name>_dec` for each raw column; null if the raw is null or too large.

    `columns` limits the raw columns to those names; empty for all.
    """
    return rows.with_columns(
        _decimals(
            tuple(
                column.name
                for column in table.columns
                if column.type == "raw" and column.name in (columns or table.names)
            )
        )
    )


@cache
def _decimals(raws: tuple[str, ...]) -> list[pl.Expr]:
    """Return a column `NAME_dec` for each raw column; null if a number does not fit into 38 digits."""
    import polars as pl

    decimals = []
    for name in raws:
        high = pl.col(name).bin.slice(0, 16)
        low = pl.col(name).bin.slice(16, 16).bin.reinterpret(dtype=pl.Int128, endianness="big")
        fits = (high == bytes(16)) & low.is_between(0, MAX_DEC38)
        decimals.append(pl.when(fits).then(low).cast(pl.Decimal(38, 0)).alias(f"{name}_dec"))
    return decimals
