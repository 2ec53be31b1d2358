"""The datasets of EVM chains, in the order of dependence. One more is its file and its line here."""

from __future__ import annotations

from collections.abc import Mapping

from adapters.evm.datasets import approvals, blocks, bodies, events, transfers, withdrawals
from adapters.evm.datasets.dataset import EvmDataset
from adapters.evm.facts import MINTS, WITHDRAWALS, Facts

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
# Those that only some chains have: whose protocol pays accounts in this way.
PAYMENTS: Mapping[str, str] = {bodies.MINTS.name: MINTS, withdrawals.DATASET.name: WITHDRAWALS}
# Topics whose logs a dataset takes: a rule over them would have them kept twice.
TAKEN = frozenset(topic for dataset in DATASETS.values() for topic in dataset.topics)


def datasets_of(facts: Facts) -> Mapping[str, EvmDataset]:
    """The datasets that a chain has."""
    return {name: each for name, each in DATASETS.items() if PAYMENTS.get(name) in (None, *facts.pays)}
