"""Count the rows of each filter by another engine, in its own interpreter without Chainfolio.

    python foreign.py ENGINE LAKE FILTERS VIEWS

FILTERS is JSON: table -> column -> [kind, value as text]. Prints JSON after COUNTS: table -> column -> count.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

Filters = dict[str, dict[str, tuple[str, str]]]
Count = Callable[[str, str, str, str], int]


def python(kind: str, text: str) -> Any:
    """The value that Python has for a text of some kind."""
    if kind == "time":
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(text))
    if kind in ("int", "long"):
        return int(text)
    return bytes.fromhex(text) if kind == "blob" else text == "True" if kind == "bool" else text


def literal(kind: str, text: str) -> str:
    """The value in DuckDB's SQL."""
    if kind == "time":
        return f"make_timestamptz({text})"
    return f"unhex('{text}')" if kind == "blob" else f"'{text}'" if kind == "text" else text


def by_duckdb(lake: str, filters: Filters, views: str) -> Count:
    """The printed views."""
    connection = import_module("duckdb").connect()
    connection.execute(Path(views).read_text())

    def count(table: str, column: str, kind: str, text: str) -> int:
        query = f'SELECT count(*) FROM {table} WHERE "{column}" = {literal(kind, text)}'
        return int(connection.execute(query).fetchall()[0][0])

    return count


def by_pyarrow(lake: str, filters: Filters, views: str) -> Count:
    """deltalake's data sets."""
    arrow, dataset, deltalake = map(import_module, ("pyarrow", "pyarrow.dataset", "deltalake"))
    tables = {table: deltalake.DeltaTable(f"{lake}/{table}").to_pyarrow_dataset() for table in filters}

    def count(table: str, column: str, kind: str, text: str) -> int:
        value = arrow.scalar(python(kind, text), tables[table].schema.field(column).type)
        return int(tables[table].count_rows(filter=dataset.field(column) == value))

    return count


def by_pandas(lake: str, filters: Filters, views: str) -> Count:
    """deltalake's pandas frames."""
    tables = {table: import_module("deltalake").DeltaTable(f"{lake}/{table}") for table in filters}

    def count(table: str, column: str, kind: str, text: str) -> int:
        return len(tables[table].to_pandas(filters=[(column, "=", python(kind, text))], columns=["height"]))

    return count


def by_polars(lake: str, filters: Filters, views: str) -> Count:
    """`scan_delta`."""
    polars = import_module("polars")

    def count(table: str, column: str, kind: str, text: str) -> int:
        rows = polars.scan_delta(f"{lake}/{table}").filter(polars.col(column) == polars.lit(python(kind, text)))
        return int(rows.select(polars.len()).collect().item())

    return count


def by_dbt(lake: str, filters: Filters, views: str) -> Count:
    """One model over sources of dbt-duckdb's `delta` plugin, run by dbt itself."""
    home = Path(tempfile.mkdtemp())
    tables = "".join(
        f"\n      - name: {table}\n        meta: {{plugin: delta, delta_table_path: '{lake}/{table}'}}"
        for table in filters
    )
    counts = " UNION ALL ".join(
        f"SELECT '{table}' AS t, '{column}' AS c, count(*) AS n FROM {{{{ source('lake', '{table}') }}}} "
        f'WHERE "{column}" = {literal(*value)}'
        for table, columns in filters.items()
        for column, value in columns.items()
    )
    output = f"{{type: duckdb, path: '{home}/out.db', threads: 1, plugins: [{{module: delta}}]}}"
    files = {
        "dbt_project.yml": "name: counts\nversion: '1.0'\nprofile: counts\nmodel-paths: [models]\n",
        "profiles.yml": f"counts:\n  target: it\n  outputs:\n    it: {output}\n",
        "models/sources.yml": f"version: 2\nsources:\n  - name: lake\n    schema: main\n    tables:{tables}\n",
        "models/counts.sql": "{{ config(materialized='table') }}\n" + counts,
    }
    for name, text in files.items():
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(text)
    os.chdir(home)
    folders = ["--project-dir", str(home), "--profiles-dir", str(home)]
    options = ["--quiet", "run", *folders, "--no-send-anonymous-usage-stats"]
    result = import_module("dbt.cli.main").dbtRunner().invoke(options)
    assert result.success, result.exception or [each.message for each in result.result]
    rows = import_module("duckdb").connect(str(home / "out.db")).execute("SELECT t, c, n FROM counts").fetchall()
    counts_found = {(table, column): int(number) for table, column, number in rows}
    return lambda table, column, kind, text: counts_found[table, column]


ENGINES = {"duckdb": by_duckdb, "pyarrow": by_pyarrow, "pandas": by_pandas, "polars": by_polars, "dbt": by_dbt}


def main(engine: str, lake: str, filters_file: str, views: str) -> None:
    """Print the counts of all tables and columns by one engine."""
    filters: Filters = json.loads(Path(filters_file).read_text())
    count = ENGINES[engine](lake, filters, views)
    counts = {
        table: {column: count(table, column, *value) for column, value in columns.items()}
        for table, columns in filters.items()
    }
    print("COUNTS " + json.dumps(counts), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
