"""The datasets of a Starknet chain."""

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
)

NATIVE: Final = ("native",)
TOKENS: Final = ("erc20", "erc721", "erc1155")

DATASETS: Final[Mapping[str, Dataset]] = {
    each.name: each
    for each in (BLOCKS_DATASET, TRANSACTIONS_DATASET, NATIVE_DATASET, TRANSFERS_DATASET, APPROVALS_DATASET)
}
