"""What the log datasets share: the columns that say where a log stands, and putting groups of rows in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from adapters.evm.columns import constant, ints, longs, text, times
from adapters.evm.logs import Logs


def place(logs: Logs, chain: str) -> dict[str, Any]:
    """chain, height, time, tx_index, log_index, tx_hash of each log."""
    return {
        "chain": constant(chain, len(logs)),
        "height": longs(logs.height),
        "time": times(logs.time_s),
        "tx_index": ints(logs.tx_index),
        "log_index": ints(logs.log_index),
        "tx_hash": text(logs.tx_hash),
    }


def in_order(groups: Sequence[pa.Table], empty: pa.Schema) -> pa.Table:
    """Groups of rows as one table in the order of the chain."""
    groups = [group for group in groups if len(group)]
    if not groups:
        return empty.empty_table()
    if len(groups) == 1:
        return groups[0]
    rows = pa.concat_tables(groups).combine_chunks()
    keys = [rows[name].to_numpy() for name in ("item", "log_index", "tx_index", "height") if name in rows.column_names]
    return rows.take(pa.array(np.lexsort(keys)))
