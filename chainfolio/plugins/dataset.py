"""Names for a plug-in of a dataset: its value, and the tables that it can fill."""

from __future__ import annotations

from chainfolio.datasets import AccountRows, Dataset
from chainfolio.table import Column, Table
from chainfolio.tables import (
    ACCOUNT_APPROVALS,
    ACCOUNT_EVENTS,
    ACCOUNT_TRANSACTIONS,
    ACCOUNT_TRANSFERS,
    APPROVALS,
    BLOCKS,
    LOGS,
    RESOURCES,
    TRANSACTIONS,
    TRANSFERS,
)

__all__ = [
    "ACCOUNT_APPROVALS",
    "ACCOUNT_EVENTS",
    "ACCOUNT_TRANSACTIONS",
    "ACCOUNT_TRANSFERS",
    "APPROVALS",
    "BLOCKS",
    "LOGS",
    "RESOURCES",
    "TRANSACTIONS",
    "TRANSFERS",
    "AccountRows",
    "Column",
    "Dataset",
    "Table",
]
