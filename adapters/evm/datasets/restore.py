"""Logs from stored rows: what every row has in common, and the few shapes of data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from adapters.evm import events
from adapters.evm.columns import hex_rows, rows_of
from adapters.evm.logs import Bytes, Logs, join


def groups(*columns: pa.Array) -> list[tuple[str | None, ...]]:
    """The distinct combinations of a few short columns, in a stable order."""
    frame = pa.table(dict(zip("abcd", columns, strict=False))).group_by(list("abcd"[: len(columns)])).aggregate([])
    return sorted((tuple(row.values()) for row in frame.to_pylist()), key=str)


def equals(*pairs: pa.Array | str | None) -> pa.Array:
    """Where column, value, column, value… all agree; null equals null."""
    mask = None
    for column, value in zip(pairs[::2], pairs[1::2], strict=True):
        here = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
        mask = here if mask is None else pc.and_(mask, here)
    return mask


def start(rows: pa.Table, topic0: str) -> Logs:
    """Blank logs with everything filled in that does not depend on the kind of event."""
    logs = Logs.blank(len(rows))
    logs.height[:] = rows["height"].to_numpy()
    logs.tx_index[:] = rows["tx_index"].to_numpy()
    logs.log_index[:] = rows["log_index"].to_numpy()
    logs.time_s[:] = rows["time"].cast(pa.int64()).to_numpy() // 1_000_000
    logs.address[:] = rows_of(rows["token"], 42)[0]
    logs.tx_hash[:] = rows_of(rows["tx_hash"], 66)[0]
    logs.topics[0][:] = np.frombuffer(topic0.encode(), np.uint8)
    logs.topic_count[:] = 1
    return logs


def put_topic(logs: Logs, k: int, words: Bytes) -> None:
    """32-byte words as the topic at place `k`."""
    logs.topics[k][:] = hex_rows(words)
    logs.topic_count[:] = np.maximum(logs.topic_count, k + 1)


def into_data(logs: Logs, parties: Sequence[Bytes], amounts: Bytes, indexed: int) -> None:
    """The first `indexed` parties as topics, the others and the amount as data."""
    from adapters.evm.columns import bytes_of_hex

    for k in range(indexed):
        logs.topics[k + 1][:] = parties[k]
    logs.topic_count[:] = 1 + indexed
    words = [bytes_of_hex(party[:, 2:]) for party in parties[indexed:]] + [amounts]
    for row in range(len(logs)):
        logs.other[row] = b"".join(word[row].tobytes() for word in words)
        logs.data_size[row] = len(logs.other[row])


def multi(rows: pa.Table, *, batch: bool) -> Logs:
    """ERC-1155 logs: one row each, or the items of a batch put together again."""
    items = rows["item"].to_numpy()
    first = np.flatnonzero(items == 0)
    logs = start(rows.take(pa.array(first)), events.TRANSFER_BATCH if batch else events.TRANSFER_SINGLE)
    for k, name in enumerate(("operator", "sender", "recipient"), 1):
        logs.topics[k][:] = events.topic_of(rows_of(rows[name], 42)[0])[first]
    logs.topic_count[:] = 4
    ids, amounts = rows_of(rows["token_id"], 32)[0], rows_of(rows["raw"], 32)[0]
    for row, (begin, end) in enumerate(zip(first, np.append(first[1:], len(items)), strict=True)):
        data = ids[begin:end].tobytes() + amounts[begin:end].tobytes()
        if batch:
            data = _two_arrays(data, int(end - begin))
        logs.other[row] = data
        logs.data_size[row] = len(data)
    return logs


def _two_arrays(items: bytes, count: int) -> bytes:
    """The ABI encoding of two arrays of `count` words each, whose words lie one after the other in `items`."""
    head, second, size = (value.to_bytes(32, "big") for value in (64, 96 + 32 * count, count))
    return head + second + size + items[: 32 * count] + size + items[32 * count :]


def sorted_logs(parts: Sequence[Logs]) -> Logs:
    """Logs of several groups in the order of the chain."""
    logs = join([part for part in parts if len(part)])
    return logs.take(np.lexsort((logs.log_index, logs.height))) if len(parts) > 1 else logs
