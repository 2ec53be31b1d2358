"""Other engines read the same rows of the lake by a filter on any column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from chainfolio.storage.lake import Lake
from chainfolio.table import Table
from chainfolio.tables import BLOCKS, TABLES

Maker = Callable[..., pa.Table]


def counts(rows: pa.Table) -> dict[str, tuple[Any, int]]:
    """Return a value of each column and the number of rows that have it."""
    counts_by_column = {}
    for name in rows.column_names:
        values = rows[name].drop_null()
        value = values[len(values) // 2]
        counts_by_column[name] = (value, rows.filter(pc.equal(rows[name], value)).num_rows)
    return counts_by_column


def by_delta(lake: Lake, table: Table) -> dict[str, int]:
    """Return the number of rows by deltalake's reader for the same values, from its log and files."""
    dataset = DeltaTable(f"{lake.uri}/{table.name}").to_pyarrow_dataset()
    expected = counts(dataset.to_table())
    return {name: dataset.count_rows(filter=ds.field(name) == value) for name, (value, _) in expected.items()}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_filter_on_any_column_finds_the_same_rows_in_every_engine(lake: Lake, make_rows: Maker, table: Table) -> None:
    for chain in ("a", "0001"):
        for batch, first in enumerate((0, 10, 20)):
            lake.append(table, make_rows(table, chain, range(first, first + 10)), stream=chain, batch=batch)
    rows = pa.concat_tables(
        [make_rows(table, chain, range(at, at + 10)) for chain in ("a", "0001") for at in (0, 10, 20)]
    )
    expected = counts(rows)
    # By a file system of Arrow's own: deltalake's is Python, and DuckDB's threads can wait for it with the interpreter.
    files = SubTreeFileSystem(f"{lake.uri}/{table.name}", LocalFileSystem())
    dataset = DeltaTable(f"{lake.uri}/{table.name}").to_pyarrow_dataset(filesystem=files)
    frame = pl.scan_delta(f"{lake.uri}/{table.name}")
    with duckdb.connect() as connection:
        connection.register("delta", dataset)
        for name, (value, count) in expected.items():
            python = value.as_py()
            engine_counts = {
                "pyarrow": dataset.count_rows(filter=ds.field(name) == value),
                "polars": frame.filter(pl.col(name) == pl.lit(python)).select(pl.len()).collect().item(),
                "duckdb": connection.execute(f'SELECT count(*) FROM delta WHERE "{name}" = ?', [python]).fetchall(),
            }
            assert engine_counts == {"pyarrow": count, "polars": count, "duckdb": [(count,)]}, f"{table.name}.{name}"


def test_pruning_by_height_still_works_from_the_log_alone(lake: Lake, make_rows: Maker) -> None:
    for batch in range(3):
        lake.append(BLOCKS, make_rows(BLOCKS, "a", [batch]), stream="a", batch=batch)
    dataset = DeltaTable(f"{lake.uri}/blocks").to_pyarrow_dataset()
    assert len(list(dataset.get_fragments(filter=ds.field("height") == 1))) == 1
