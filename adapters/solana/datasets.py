"""The datasets of a Solana chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chainfolio.datasets import Dataset
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, BLOCKS, REWARD, TRANSACTIONS, TRANSFERS

STANDARDS: Final = {"native": "native", "transfers": "spl"}
REWARDS: Final = "rewards"
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
        standards=("native",),
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
    REWARDS: Dataset(
        REWARDS,
        TRANSFERS,
        standards=(REWARD,),
        history=ACCOUNT_TRANSFERS.name,
        in_activity=True,
        is_default=False,
        loss="what stake accounts earned is not indexed",
        by_account="epochs",
        account_columns=("recipient",),
        reward_protocol="solana_stake",
    ),
}
