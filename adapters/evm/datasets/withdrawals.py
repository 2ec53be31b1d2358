"""Withdrawals of validators, from block headers: native coins that no transaction moves.

A row is sorted after all transactions of its block, and has the block's hash instead of a transaction's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chainfolio.adapters.evm.datasets.common import ZERO_ADDRESS, CoinRow, coin_rows
from chainfolio.adapters.evm.datasets.dataset import EvmDataset
from chainfolio.tables import ACCOUNT_TRANSFERS, TRANSFERS

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.adapters.evm.datasets.transactions import FullBlock
    from chainfolio.adapters.evm.node import Header

GWEI = 10**9
STANDARD = "withdrawal"


def rows(blocks: Sequence[Header | FullBlock], chain: str) -> pa.Table:
    """Return rows of `transfers` in wei for withdrawals above zero, after the transactions of their block.

    `item` is the index of the withdrawal in its block.
    """
    coins = [
        CoinRow(
            block.height,
            block.time_s,
            len(block.transactions),
            item,
            block.hash.lower(),
            ZERO_ADDRESS,
            each.address.lower(),
            int(each.amount, 16) * GWEI,
        )
        for block in blocks
        for item, each in enumerate(block.withdrawals or ())
    ]
    return coin_rows([row for row in coins if row.raw], chain, STANDARD)


DATASET = EvmDataset(
    "withdrawals",
    TRANSFERS,
    standards=(STANDARD,),
    history=ACCOUNT_TRANSFERS.name,
    in_activity=True,
    of_headers=rows,
    by_account="places",
    account_columns=("sender", "recipient"),
    loss="withdrawals of validators are not indexed: the coins that they brought are missing",
)
