"""Check rows of the lake's tables, and bring them into their order."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from chainfolio.storage.arrays import have_width, numbers
from chainfolio.table import Table

Rows: TypeAlias = pa.RecordBatch | pa.Table


COUNTERS = frozenset({"height", "time", "tx_index", "log_index", "validator", "epoch"})


def check_rows(table: Table, rows: Rows) -> None:
    """Assert that rows have the columns, types and lengths of `table`, and no missing values."""
    expected = table.schema()
    assert rows.schema.equals(expected), (
        f"rows do not have the columns of {table.name}: {_difference(rows.schema, expected)}"
    )
    for column in table.columns:
        values = rows.column(column.name)
        assert column.nullable or not values.null_count, f"{table.name}.{column.name} must be known in every row"
        if column.type == "raw" and len(values) > values.null_count:
            assert have_width(values, 32), f"{table.name}.{column.name}: a raw has exactly 32 bytes"


def _difference(actual: Any, expected: Any) -> str:
    """Return the first difference between two types of columns, as text."""
    for at, field in enumerate(expected):
        actual_field = actual.field(at) if at < len(actual) else "nothing"
        if not field.equals(actual_field):
            return f"column {at} is {actual_field}, expected {field}"
    return f"{len(actual)} columns instead of {len(expected)}"


def in_order(table: Table, rows: pa.Table) -> pa.Table:
    """Return rows sorted in the table's order."""
    return rows if _is_in_order(table, rows) else _sort(table, rows)


def _is_in_order(table: Table, rows: pa.Table) -> bool:
    """Return True if the rows of one partition are in the table's order.

    Columns of the partition are not compared.
    """
    tied = np.ones(max(0, len(rows) - 1), np.bool_)
    for name in table.order:
        if name in table.partitions:
            continue
        falls, equal = _steps(rows[name])
        if (falls & tied).any():
            return False
        tied &= equal
        if not tied.any():
            return True
    return True


def _steps(values: pa.ChunkedArray) -> tuple[Any, Any]:
    """Return two masks over all rows but the first: less than the previous row, and equal to it.

    They are False at nulls.
    """
    plain = numbers(values)
    if plain is not None:
        return plain[1:] < plain[:-1], plain[1:] == plain[:-1]
    import pyarrow.compute as pc

    flat = values.combine_chunks()
    before, after = flat.slice(0, max(0, len(flat) - 1)), flat.slice(1)
    return tuple(
        pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
        for mask in (pc.less(after, before), pc.equal(before, after))
    )


def _sort(table: Table, rows: pa.Table, *first: str) -> pa.Table:
    names = [*first, *(name for name in table.order if name not in table.partitions)]
    return rows.sort_by([(name, "ascending") for name in names])
