"""Which part of the rows of an index hashes cover: what is left of them where a lie cannot be told from the truth."""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

UNCOVERED: Final = {
    "transactions": ("sender", "created", "gas_price", "fee"),
    "transfers": ("sender", "recipient"),
    "blocks": ("tx_count",),  # but where whole bodies say how many there are
}
TEXTS: Final = frozenset({"tx_hash", "hash", "sender", "recipient", "created"})
Tables = dict[str, pa.Table]


def covered(tables: Tables) -> dict[str, list[Any]]:
    """The rows of some tables; of what no hash covers only whether it is spelt as it should be."""
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
    """Whether hashes and addresses are in lower case."""
    names = TEXTS & row.keys()
    return all(row[name] is None or re.fullmatch("0x[0-9a-f]{40,64}", row[name]) for name in names)


def equal_tables(first: Tables, second: Tables) -> bool:
    """Whether the rows are the same."""
    return first.keys() == second.keys() and all(first[name].equals(second[name]) for name in first)
