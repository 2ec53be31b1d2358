"""The datasets of a Starknet chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chainfolio.datasets import Dataset
from chainfolio.tables import (
    ACCOUNT_APPROVALS,
    ACCOUNT_TRANSACTIONS,
    ACCOUNT_TRANSFERS,
    APPROVALS,
    BLOCKS,
    TRANSACTIONS,
    TRANSFERS,
)

NATIVE: Final = ("native",)
TOKENS: Final = ("erc20", "erc721", "erc1155")
PARTIES: Final = ("sender", "recipient")

DATASETS: Final[Mapping[str, Dataset]] = {
    "blocks": Dataset("blocks", BLOCKS),
    "transactions": Dataset(
        "transactions",
        TRANSACTIONS,
        history=ACCOUNT_TRANSACTIONS.name,
        in_activity=True,
        loss="transactions are not indexed",
        by_account="places",
        account_columns=PARTIES,
    ),
    "native": Dataset(
        "native",
        TRANSFERS,
        standards=NATIVE,
        history=ACCOUNT_TRANSFERS.name,
        in_activity=True,
        loss="native coins are not indexed",
        by_account="places",
        account_columns=PARTIES,
    ),
    "transfers": Dataset(
        "transfers",
        TRANSFERS,
        filtered_by="contract",
        history=ACCOUNT_TRANSFERS.name,
        in_activity=True,
        by_account="places",
        account_columns=PARTIES,
    ),
    "approvals": Dataset(
        "approvals",
        APPROVALS,
        filtered_by="contract",
        history=ACCOUNT_APPROVALS.name,
        in_activity=True,
        by_account="places",
        account_columns=("owner", "spender"),
    ),
}
