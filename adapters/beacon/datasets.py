"""The datasets of a beacon chain."""

from __future__ import annotations

from typing import Final

from chainfolio.datasets import Dataset
from chainfolio.staking_tables import (
    DEPOSITS,
    PROPOSALS,
    STAKE_CHANGES,
    STAKE_REQUESTS,
    VALIDATOR_REWARDS,
    VALIDATORS,
    WITHDRAWALS,
)
from chainfolio.tables import BLOCKS

# Filled from settled epochs, which are read once for all three.
EPOCH_DATASETS: Final = ("validator_rewards", "validators", "stake_changes")
DATASETS: Final = {
    "blocks": Dataset("blocks", BLOCKS),
    **{
        table.name: Dataset(table.name, table, filtered_by="contract")
        for table in (
            PROPOSALS,
            WITHDRAWALS,
            DEPOSITS,
            STAKE_REQUESTS,
            VALIDATOR_REWARDS,
            VALIDATORS,
            STAKE_CHANGES,
        )
    },
}
