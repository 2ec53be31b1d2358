"""Shared parts of datasets: the position columns of logs, rows of native coins, sorted merging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from chainfolio.adapters.evm.columns import Bytes, Mask, constant, ints, longs, of_ints, table, text, times
from chainfolio.adapters.evm.logs import Logs
from chainfolio.tables import TRANSFERS

ZERO_ADDRESS: Final = "0x" + "0" * 40  # the sender of minted coins


def log_columns(logs: Logs, chain: str) -> dict[str, pa.Array]:
    """Return the columns chain, height, time, tx_index, log_index and tx_hash of logs."""
    return {
        "chain": constant(chain, len(logs)),
        "height": longs(logs.height),
        "time": times(logs.time_s),
        "tx_index": ints(logs.tx_index),
        "log_index": ints(logs.log_index),
        "tx_hash": text(logs.tx_hash),
    }


def null_words(count: int) -> tuple[Bytes, Mask]:
    """Return a column of `count` null numbers of 256 bits."""
    return np.zeros((count, 32), np.uint8), np.zeros(count, np.bool_)


class CoinRow(NamedTuple):
    """One movement of native coins.

    `item` is 0 for a transaction's own value, counts from 1 for its calls, and is -1 for a deposit from another chain.
    """

    height: int
    time_s: int
    tx_index: int
    item: int
    tx_hash: str
    sender: str
    recipient: str
    raw: int


def coin_rows(coins: Sequence[CoinRow], chain: str, standard: str) -> pa.Table:
    """Return rows of `transfers` for native coins, in their order.

    No log records such transfers: their log index is -1.
    """
    n = len(coins)
    columns = dict(zip(CoinRow._fields, zip(*coins, strict=True) if n else [()] * len(CoinRow._fields), strict=True))
    return table(
        TRANSFERS,
        {
            "chain": constant(chain, n),
            "height": longs(np.array(columns["height"], np.int64)),
            "time": times(np.array(columns["time_s"], np.int64)),
            "tx_index": ints(np.array(columns["tx_index"])),
            "log_index": ints(np.full(n, -1)),
            "item": ints(np.array(columns["item"])),
            "tx_hash": pa.array(columns["tx_hash"], pa.string()),
            "standard": constant(standard, n),
            "token": constant(None, n),
            "operator": constant(None, n),
            "sender": pa.array(columns["sender"], pa.string()),
            "recipient": pa.array(columns["recipient"], pa.string()),
            "layout": constant(None, n),
            "token_id": null_words(n),
            "raw": of_ints(columns["raw"])[0],
        },
    )


def merge_sorted(groups: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Merge groups of rows in the order of the chain; return an empty table of `schema` without rows."""
    groups = [group for group in groups if len(group)]
    if not groups:
        return schema.empty_table()
    if len(groups) == 1:
        return groups[0]
    rows = pa.concat_tables(groups).combine_chunks()
    keys = [rows[name].to_numpy() for name in ("item", "log_index", "tx_index", "height") if name in rows.column_names]
    return rows.take(pa.array(np.lexsort(keys)))
