"""Reduce rows of an index to the parts that hashes prove."""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

UNCOVERED: Final = {
    "transactions": ("sender", "created", "gas_price", "fee"),
    "transfers": ("sender", "recipient"),
    "blocks": ("tx_count",),  # unless complete bodies contain the count
}
TEXTS: Final = frozenset({"tx_hash", "hash", "sender", "recipient", "created"})
Tables = dict[str, pa.Table]


def covered(tables: Tables) -> dict[str, list[Any]]:
    """Return the rows; a value that no hash covers is replaced by whether it is well-formed."""
    covered_tables = {}
    for name, table in sorted(tables.items()):
        rows = table.to_pylist()
        if name == "transfers":
            rows = [row for row in rows if row["standard"] != "internal" or not spelt(row)]
        covered_tables[name] = [_covered(name, row, "transactions" in tables) for row in rows]
    return covered_tables


def _covered(table: str, row: dict[str, Any], bodies: bool) -> dict[str, Any]:
    uncovered = UNCOVERED.get(table, ())
    if (table == "blocks" and bodies) or (table == "transfers" and row["standard"] != "native"):
        uncovered = ()
    return {name: value if name not in uncovered else spelt({name: value}) for name, value in row.items()}


def spelt(row: dict[str, Any]) -> bool:
    """Return True if all hashes and addresses of a row are hex in lower case."""
    names = TEXTS & row.keys()
    return all(row[name] is None or re.fullmatch("0x[0-9a-f]{40,64}", row[name]) for name in names)


def equal_tables(first: Tables, second: Tables) -> bool:
    """Return True if both have the same tables with the same rows."""
    return first.keys() == second.keys() and all(first[name].equals(second[name]) for name in first)
