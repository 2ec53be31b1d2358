"""The datasets of a Solana chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chainfolio.datasets import (
    BLOCKS_DATASET,
    NATIVE_DATASET,
    TRANSACTIONS_DATASET,
    TRANSFERS_DATASET,
    Dataset,
)
from chainfolio.tables import ACCOUNT_TRANSFERS, REWARD, TRANSFERS

STANDARDS: Final = {"native": "native", "transfers": "spl"}
REWARDS: Final = "rewards"

REWARDS_DATASET: Final = Dataset(
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
)
DATASETS: Final[Mapping[str, Dataset]] = {
    each.name: each
    for each in (BLOCKS_DATASET, TRANSACTIONS_DATASET, NATIVE_DATASET, TRANSFERS_DATASET, REWARDS_DATASET)
}
