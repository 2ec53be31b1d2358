"""Datasets of EVM chains, in the order of dependence. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from chainfolio.adapters.evm.datasets import approvals, blocks, bodies, events, transfers, withdrawals
from chainfolio.adapters.evm.datasets.dataset import EvmDataset
from chainfolio.adapters.evm.facts import MINTS, WITHDRAWALS, Facts

DATASETS: Mapping[str, EvmDataset] = {
    dataset.name: dataset
    for dataset in (
        blocks.DATASET,
        bodies.TRANSACTIONS_DATASET,
        bodies.NATIVE,
        transfers.DATASET,
        approvals.DATASET,
        bodies.INTERNAL,
        bodies.MINTS,
        withdrawals.DATASET,
        events.DATASET,
    )
}
# Datasets that only some chains have, with the payment of the protocol that they need.
REQUIRED_PAYMENTS: Mapping[str, str] = {bodies.MINTS.name: MINTS, withdrawals.DATASET.name: WITHDRAWALS}
# A protocol's rule must not ask for these events: their logs would be stored twice.
DATASET_TOPICS = frozenset(topic for dataset in DATASETS.values() for topic in dataset.topics)


def datasets_of(facts: Facts) -> Mapping[str, EvmDataset]:
    """Return the datasets that a chain has, by name."""
    return {name: each for name, each in DATASETS.items() if REQUIRED_PAYMENTS.get(name) in (None, *facts.pays)}
