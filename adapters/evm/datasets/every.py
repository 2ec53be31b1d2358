"""The datasets of EVM chains, in the order of dependence. One more is its file and its line here."""

from __future__ import annotations

from collections.abc import Mapping

from adapters.evm.datasets import approvals, blocks, bodies, events, transfers
from adapters.evm.datasets.dataset import EvmDataset

DATASETS: Mapping[str, EvmDataset] = {
    dataset.name: dataset
    for dataset in (
        blocks.DATASET,
        bodies.TRANSACTIONS_DATASET,
        bodies.NATIVE,
        transfers.DATASET,
        approvals.DATASET,
        bodies.INTERNAL,
        events.DATASET,
    )
}
# Topics whose logs a dataset takes: a rule over them would have them kept twice.
TAKEN = frozenset(topic for dataset in DATASETS.values() for topic in dataset.topics)
