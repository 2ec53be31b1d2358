"""The lake's tables as DuckDB views: the files as they are, with a DECIMAL beside each 32-byte amount."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chainfolio.amounts import MAX_DEC38
from chainfolio.tables import TABLES, Table


def views(files: Mapping[str, Sequence[str]]) -> list[str]:
    """One CREATE VIEW a table; a table without files gets an empty one of the right columns."""
    return [_view(table, files.get(name, ())) for name, table in TABLES.items()]


def _view(table: Table, files: Sequence[str]) -> str:
    if not files:
        shown = [pair for column in table.columns for pair in _types(column.name, column.type)]
        columns = ", ".join(f"NULL::{kind} AS {_quoted(name)}" for name, kind in shown)
        return f"CREATE OR REPLACE VIEW {table.name} AS SELECT {columns} WHERE false;"
    names = ", ".join(map(literal, files))
    columns = ", ".join(column for each in table.columns for column in _columns(each.name, each.type))
    # Named, or DuckDB guesses from the folders' names: a chain called 1 would be a number.
    parts = {column.name: column.type for column in table.columns if column.name in table.partitions}
    types = ", ".join(f"{literal(name)}: {kind}" for part in parts.items() for name, kind in _types(*part))
    return (
        f"CREATE OR REPLACE VIEW {table.name} AS SELECT {columns} FROM read_parquet([{names}], "
        f"hive_partitioning = true, hive_types = {{{types}}}, union_by_name = true);"
    )


def _columns(name: str, kind: str) -> list[str]:
    column = _quoted(name)
    return [column, f"{decimal_of(column)} AS {_quoted(name + '_dec')}"] if kind == "raw" else [column]


def decimal_of(column: str) -> str:
    """DECIMAL(38,0) from 32 big-endian bytes, in SQL; null where it does not fit."""
    low, limit = f"substr(hex({column}), 33)", f"{MAX_DEC38:032X}"
    fits = f"substr(hex({column}), 1, 32) = '{'0' * 32}' AND {low} <= '{limit}'"
    return f"CASE WHEN {fits} THEN ('0x' || {low})::HUGEINT::DECIMAL(38, 0) END"


def literal(text: str) -> str:
    """Text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _types(name: str, kind: str) -> list[tuple[str, str]]:
    if kind == "raw":
        return [(name, "BLOB"), (name + "_dec", "DECIMAL(38, 0)")]
    types = {"text": "VARCHAR", "int": "INTEGER", "long": "BIGINT", "bool": "BOOLEAN", "time": "TIMESTAMPTZ"}
    return [(name, types.get(kind, "BLOB"))]
