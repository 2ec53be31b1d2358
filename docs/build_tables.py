"""Writes `docs/tables.md` from the tables themselves: `python -m docs.build_tables`."""

from __future__ import annotations

from pathlib import Path

from chainfolio.table import Table
from chainfolio.tables import TABLES

PAGE = Path(__file__).with_name("tables.md")
TYPES = {
    "text": "VARCHAR",
    "int": "INTEGER",
    "long": "BIGINT",
    "bool": "BOOLEAN",
    "time": "TIMESTAMP (UTC, µs)",
    "bytes": "BLOB",
    "raw": "BLOB (32 bytes)",
}
HEAD = """\
# Tables

Generated from `chainfolio/tables.py` by `python -m docs.build_tables`; names, types and partitions are public.

Each table is a Delta table of plain Parquet files in the lake: any engine reads them, see
[query the lake](how-to/query-the-lake.md). Addresses and hashes are text in the chain's canonical form. An amount `raw`
is the chain's integer in exactly 32 big-endian bytes: exact for all 256 bits, and it sorts. `chainfolio sql`, its views
and our own frames show a `<name>_dec` DECIMAL(38,0) beside it, null where the value does not fit; it is computed, not
stored.

What `chainfolio reconcile` found is no table of the lake. It ends when a block of its range is reorganised, forgotten
or indexed again, so it is kept in the tail, in the same transactions. `chainfolio status --json` shows it.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_section(table) for table in TABLES.values())])


def _section(table: Table) -> str:
    facts = [f"Key: {_names(table.key)}.", f"Partitions: {_names(table.partitions)}.", f"Order: {_names(table.order)}."]
    if table.derived_from:
        facts.append(f"Derived from `{table.derived_from}`.")
    rows = [
        f"| `{column.name}` | {TYPES[column.type]} | {'yes' if column.nullable else ''} | {column.description} |"
        for column in table.columns
    ]
    head = ["| column | type | may be null | what it is |", "|---|---|---|---|"]
    return "\n".join([f"## {table.name}", "", table.description, "", " ".join(facts), "", *head, *rows, ""])


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(page())
