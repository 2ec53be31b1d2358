"""What datasets share: the columns that say where a log stands, rows of coins, and putting groups of rows in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from adapters.evm.columns import constant, ints, longs, of_ints, table, text, times
from adapters.evm.logs import Logs
from chainfolio.tables import TRANSFERS

if TYPE_CHECKING:
    from adapters.evm.datasets.dataset import EvmDataset

NOBODY: Final = "0x" + "0" * 40  # from whom minted coins come


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


class Coins(NamedTuple):
    """Native coins that moved: `item` is 0 for a transaction's own value, from 1 on what its calls moved, and -1 for
    what came with it from another chain."""

    height: int
    time_s: int
    tx_index: int
    item: int
    tx_hash: str
    sender: str
    recipient: str
    raw: int


def coin_rows(moved: Sequence[Coins], chain: str, standard: str) -> pa.Table:
    """Rows of `transfers` for native coins, which no log tells of."""
    n = len(moved)
    columns = dict(zip(Coins._fields, zip(*moved, strict=True), strict=True)) if n else dict.fromkeys(Coins._fields, ())
    known = {name: pa.array(columns[name], pa.string()) for name in ("tx_hash", "sender", "recipient")}
    return table(TRANSFERS, {
        "chain": constant(chain, n), "height": longs(np.array(columns["height"], np.int64)),
        "time": times(np.array(columns["time_s"], np.int64)), "tx_index": ints(np.array(columns["tx_index"])),
        "log_index": ints(np.full(n, -1)), "item": ints(np.array(columns["item"])), "standard": constant(standard, n),
        "token": constant(None, n), "operator": constant(None, n), "layout": constant(None, n),
        "token_id": (np.zeros((n, 32), np.uint8), np.zeros(n, np.bool_)), "raw": of_ints(columns["raw"])[0], **known,
    })  # fmt: skip


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


def add(tables: dict[str, pa.Table], made: Sequence[tuple[EvmDataset, pa.Table]]) -> None:
    """Put the rows of datasets into their tables, beside those of others, in the order of the chain."""
    for dataset, rows in made:
        name = dataset.table.name
        before = [tables[name]] if name in tables else []
        tables[name] = in_order([*before, rows], rows.schema) if dataset.standards else rows
