"""The tables of the lake that accounts of the API may read in SQL, and how they are described."""

from __future__ import annotations

from typing import Final

import msgspec

from chainfolio.tables import SNAPSHOT_HOLDINGS, SNAPSHOTS, TABLES

# Rows that exist because an account of the API subscribed to a wallet.
PRIVATE: Final = frozenset({SNAPSHOTS.name, SNAPSHOT_HOLDINGS.name})
PUBLIC: Final = tuple(name for name in TABLES if name not in PRIVATE)
NOT_OFFERED: Final = "is not offered to accounts of the API"


class LakeColumn(msgspec.Struct, frozen=True):
    """A column as a query sees it, with its type in DuckDB."""

    name: str
    type: str
    description: str


class LakeTable(msgspec.Struct, frozen=True):
    """A table that a query may read.

    Attributes:
        chains: The chains that have rows in it; empty if nothing was indexed into it, or nothing happened.
        rows: Number of rows.
        bytes: Size of its files.
    """

    name: str
    description: str
    columns: list[LakeColumn]
    chains: list[str]
    rows: int
    bytes: int
