"""The datasets of a Tron chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chainfolio.datasets import (
    APPROVALS_DATASET,
    BLOCKS_DATASET,
    NATIVE_DATASET,
    TRANSACTIONS_DATASET,
    TRANSFERS_DATASET,
    Dataset,
    coin_dataset,
)
from chainfolio.tables import RESOURCES

NATIVE, INTERNAL = "native", "internal"

DATASETS: Final[Mapping[str, Dataset]] = {
    each.name: each
    for each in (
        BLOCKS_DATASET,
        TRANSACTIONS_DATASET,
        NATIVE_DATASET,
        coin_dataset(INTERNAL, "native coins that contracts send are not indexed"),
        TRANSFERS_DATASET,
        APPROVALS_DATASET,
        Dataset("resources", RESOURCES, is_default=False),
    )
}
