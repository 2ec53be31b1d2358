"""Withdrawals of validators, from headers: native coins that no transaction moved.

A row stands behind all transactions of its block, and has the hash of the block in the place of a transaction's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adapters.evm.datasets.common import NOBODY, Coins, coin_rows
from adapters.evm.datasets.dataset import EvmDataset
from chainfolio.tables import ACCOUNT_TRANSFERS, TRANSFERS

if TYPE_CHECKING:
    import pyarrow as pa

    from adapters.evm.datasets.transactions import FullBlock
    from adapters.evm.node import Header

GWEI = 10**9
STANDARD = "withdrawal"


def rows(blocks: Sequence[Header | FullBlock], chain: str) -> pa.Table:
    """Rows of `transfers`; `item` is the position in the list of the block."""
    paid = [
        Coins(
            block.height, block.time_s, len(block.transactions), item, block.hash.lower(), NOBODY,
            each.address.lower(), int(each.amount, 16) * GWEI,
        )
        for block in blocks for item, each in enumerate(block.withdrawals or ())
    ]  # fmt: skip
    return coin_rows([coins for coins in paid if coins.raw], chain, STANDARD)


DATASET = EvmDataset(
    "withdrawals", TRANSFERS, standards=(STANDARD,), history=ACCOUNT_TRANSFERS.name, in_activity=True, of_headers=rows,
    by_account="places", parties=("sender", "recipient"),
    loss="withdrawals of validators are not indexed: the coins that they brought are missing",
)  # fmt: skip
