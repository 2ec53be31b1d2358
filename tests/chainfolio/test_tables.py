"""The tables as values: whole, consistent, documented."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio import staking_tables, tables
from chainfolio.table import BUCKETS, Table, bucket
from chainfolio.tables import TABLES

TYPES = {
    "text": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "bool": pa.bool_(),
    "time": pa.timestamp("us", tz="UTC"),
    "bytes": pa.binary(),
    "raw": pa.binary(),
}
each = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())


def test_every_table_of_the_modules_is_found_under_its_name() -> None:
    values = [*vars(staking_tables).values(), *vars(tables).values()]
    assert {value.name: value for value in values if isinstance(value, Table)} == TABLES


@each
def test_the_schema_of_the_files_is_that_of_the_columns(table: Table) -> None:
    schema = table.schema()
    assert schema.names == table.names
    assert [schema.field(column.name).type for column in table.columns] == [TYPES[c.type] for c in table.columns]
    assert [schema.field(column.name).nullable for column in table.columns] == [c.nullable for c in table.columns]
    assert table.schema() is schema


@each
def test_names_are_plain_and_no_two_are_alike(table: Table) -> None:
    names = [name for c in table.columns for name in ([c.name, f"{c.name}_dec"] if c.type == "raw" else [c.name])]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in [table.name, *names])


@each
def test_keys_orders_and_partitions_are_columns_that_are_always_known(table: Table) -> None:
    nullable = {column.name for column in table.columns if column.nullable}
    for names in (table.key, table.order, table.partitions):
        assert names
        assert len(set(names)) == len(names)
        assert set(names) <= set(table.names)
        assert not set(names) & nullable


@each
def test_rows_of_one_key_lie_in_one_partition_and_the_order_tells_them_apart(table: Table) -> None:
    if "bucket" in table.partitions:
        assert table.order[0] in ("account", "validator", "pubkey")  # which says the bucket
    assert set(table.partitions) - {"bucket"} <= set(table.key)
    assert set(table.key) <= {*table.order, *table.partitions}


@each
def test_every_column_is_explained(table: Table) -> None:
    assert table.description.endswith(".")
    assert all(column.description and column.description == column.description.strip() for column in table.columns)


@each
def test_a_derived_table_names_the_one_it_is_made_of(table: Table) -> None:
    assert table.derived_from == "" or table.derived_from in TABLES
    assert table.revision >= 1


@given(st.text(max_size=80))
def test_a_bucket_is_one_of_the_buckets(account: str) -> None:
    assert 0 <= bucket(account) < BUCKETS


@pytest.mark.parametrize(
    ("account", "number"),
    [("0x0000000000000000000000000000000000000000", 51), ("0xd8da6bf26964af9d7eed9e03e53415d37aa96045", 29)],
)
def test_the_bucket_of_an_account_never_changes(account: str, number: int) -> None:
    assert bucket(account) == number


@each
def test_rows_fill_a_table_with_constants_and_null_where_nothing_is_named(table: Table) -> None:
    last = table.names[-1]
    filled = table.filled("here", [last], [[None]] * 3)
    assert filled.schema == table.schema()
    assert filled.to_pylist() == [{**dict.fromkeys(table.names), "chain": "here"}] * 3
    assert table.filled("here", table.names, []).schema == table.schema()
    assert table.filled("here", [], [[]] * 2, **{last: None}).num_rows == 2
