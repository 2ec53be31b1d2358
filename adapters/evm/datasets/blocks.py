"""The dataset of blocks, from their headers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from chainfolio.adapters.evm.columns import constant, of_ints, table, times
from chainfolio.adapters.evm.datasets.dataset import EvmDataset
from chainfolio.adapters.evm.node import Header
from chainfolio.tables import BLOCKS


def rows(headers: Sequence[Header], chain: str) -> pa.Table:
    """Return rows of `blocks`, in the order of the headers; the base fee is null before London."""
    fees = [None if h.baseFeePerGas is None else int(h.baseFeePerGas, 16) for h in headers]
    return table(
        BLOCKS,
        {
            "chain": constant(chain, len(headers)),
            "height": pa.array([h.height for h in headers], pa.int64()),
            "time": times(np.array([h.time_s for h in headers], np.int64)),
            "hash": pa.array([h.hash for h in headers], pa.string()),
            "parent": pa.array([h.parentHash for h in headers], pa.string()),
            "miner": pa.array([h.miner.lower() for h in headers], pa.string()),
            "gas_used": pa.array([int(h.gasUsed, 16) for h in headers], pa.int64()),
            "gas_limit": pa.array([int(h.gasLimit, 16) for h in headers], pa.int64()),
            "base_fee": of_ints(fees),
            "tx_count": pa.array([len(h.transactions) for h in headers], pa.int32()),
        },
    )


DATASET = EvmDataset("blocks", BLOCKS, of_headers=rows)
