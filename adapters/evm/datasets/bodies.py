"""The datasets that are made from what is inside blocks. What reads it is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adapters.evm.datasets.dataset import EvmDataset
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, TRANSACTIONS, TRANSFERS

if TYPE_CHECKING:
    import pyarrow as pa

    from adapters.evm.datasets.transactions import Done


def _transactions(done: Sequence[Done], chain: str) -> pa.Table:
    from adapters.evm.datasets import transactions

    return transactions.rows(done, chain)


def _native(done: Sequence[Done], chain: str) -> pa.Table:
    from adapters.evm.datasets import transactions

    return transactions.native(done, chain)


def _mints(done: Sequence[Done], chain: str) -> pa.Table:
    from adapters.evm.datasets import transactions

    return transactions.mints(done, chain)


def _internal(moved: Mapping[Any, Any], chain: str) -> pa.Table:
    from adapters.evm.datasets import internal

    return internal.rows(moved, chain)


TRANSACTIONS_DATASET = EvmDataset(
    "transactions", TRANSACTIONS, history=ACCOUNT_TRANSACTIONS.name, in_activity=True, of_bodies=_transactions,
    by_account="places", parties=("sender", "recipient", "created"),
    loss="transactions are not indexed: those that moved nothing, failed ones, and calls to a contract wallet are "
    "missing",
)  # fmt: skip
NATIVE = EvmDataset(
    "native", TRANSFERS, standards=("native",), history=ACCOUNT_TRANSFERS.name, in_activity=True, of_bodies=_native,
    by_account="places", parties=("sender", "recipient"),
    loss="native coins that transactions sent are not indexed: a payment to a wallet that nothing else shows is "
    "missing",
)  # fmt: skip
MINTS = EvmDataset(
    "mints", TRANSFERS, standards=("mint",), history=ACCOUNT_TRANSFERS.name, in_activity=True, of_bodies=_mints,
    by_account="places", parties=("sender", "recipient"),
    loss="coins that deposits from another chain minted are not indexed, and missing from assetsIn",
)  # fmt: skip
# Only where nodes trace, or the operator asks for it: most nodes do not, and those that do charge for it.
INTERNAL = EvmDataset(
    "internal", TRANSFERS, standards=("internal",), history=ACCOUNT_TRANSFERS.name, in_activity=True, is_usual=False,
    by_account="places", parties=("sender", "recipient"), of_traces=_internal,
    loss="native coins that contracts sent inside transactions are not indexed, and missing from assetsIn and "
    "assetsOut",
)  # fmt: skip
