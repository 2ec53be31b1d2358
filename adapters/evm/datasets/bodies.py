"""The datasets that are made from block bodies and traces."""

from __future__ import annotations

from chainfolio.adapters.evm.datasets import internal, transactions
from chainfolio.adapters.evm.datasets.dataset import EvmDataset
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, TRANSACTIONS, TRANSFERS

TRANSACTIONS_DATASET = EvmDataset(
    "transactions",
    TRANSACTIONS,
    history=ACCOUNT_TRANSACTIONS.name,
    in_activity=True,
    of_bodies=transactions.rows,
    by_account="places",
    account_columns=("sender", "recipient", "created"),
    loss="transactions are not indexed: those that moved nothing, failed ones, and calls to a contract wallet are "
    "missing",
)
NATIVE = EvmDataset(
    "native",
    TRANSFERS,
    standards=("native",),
    history=ACCOUNT_TRANSFERS.name,
    in_activity=True,
    of_bodies=transactions.native,
    by_account="places",
    account_columns=("sender", "recipient"),
    loss="native coins that transactions sent are not indexed: a payment to a wallet that nothing else shows is "
    "missing",
)
MINTS = EvmDataset(
    "mints",
    TRANSFERS,
    standards=("mint",),
    history=ACCOUNT_TRANSFERS.name,
    in_activity=True,
    of_bodies=transactions.mints,
    by_account="places",
    account_columns=("sender", "recipient"),
    loss="coins that deposits from another chain minted are not indexed, and missing from assetsIn",
)
# Indexed only if a node traces, or the operator asks for it: most nodes do not trace, the others charge for it.
INTERNAL = EvmDataset(
    "internal",
    TRANSFERS,
    standards=("internal",),
    history=ACCOUNT_TRANSFERS.name,
    in_activity=True,
    is_default=False,
    by_account="places",
    account_columns=("sender", "recipient"),
    of_traces=internal.rows,
    loss="native coins that contracts sent inside transactions are not indexed, and missing from assetsIn and "
    "assetsOut",
)
