"""Logs from stored rows: what every row has in common, and the few shapes of data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from adapters.evm import events
from adapters.evm.columns import rows_of
from adapters.evm.logs import Bytes, Logs, join, untouched


def groups(rows: pa.Table, *names: str) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """Each distinct combination of a few short columns, in a stable order, with its rows."""
    encoded = [rows[name].combine_chunks().dictionary_encode("encode") for name in names]
    codes = np.zeros(len(rows), np.int64)
    for column in encoded:
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
    found = []
    for code in np.flatnonzero(np.bincount(codes)).tolist():
        values, rest = [], code
        for column in reversed(encoded):
            rest, at = divmod(rest, len(column.dictionary))
            values.append(column.dictionary[at].as_py())
        found.append((tuple(reversed(values)), code))
    for combination, code in sorted(found, key=lambda one: str(one[0])):
        yield combination, rows if len(found) == 1 else rows.filter(pa.array(codes == code))


def start(rows: pa.Table, topic0: str) -> Logs:
    """Logs with everything filled in that does not depend on the kind of event; what says nothing takes no memory."""
    n = len(rows)
    hashes, topics = np.zeros((n, 0), np.uint8), [untouched(n) for _ in range(4)]
    topics[0] = np.broadcast_to(np.frombuffer(topic0.encode(), np.uint8), (n, 66))
    height, tx_index, log_index = (
        rows[name].to_numpy().astype(np.int64) for name in ("height", "tx_index", "log_index")
    )
    return Logs(
        height, tx_index, log_index, rows["time"].cast(pa.int64()).to_numpy() // 1_000_000,
        rows_of(rows["token"], 42)[0], rows_of(rows["tx_hash"], 66)[0], hashes, np.ones(n, np.int64), topics,
        np.zeros(n, np.int64), np.zeros((n, 32), np.uint8), {},
    )  # fmt: skip


def put_topic(logs: Logs, k: int, topics: Bytes) -> None:
    """The topic at place `k`."""
    logs.topics[k] = topics
    logs.topic_count = np.maximum(logs.topic_count, k + 1)


def into_data(logs: Logs, parties: Sequence[Bytes], amounts: Bytes, indexed: int) -> None:
    """The first `indexed` parties as topics, the others and the amount as data."""
    from adapters.evm.columns import bytes_of_hex

    for k in range(indexed):
        put_topic(logs, k + 1, parties[k])
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
        put_topic(logs, k, events.topic_of(rows_of(rows[name], 42)[0])[first])
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


def once(logs: Logs) -> Logs:
    """Sorted logs without those that two tables stood for: a kill while decoding again leaves such."""
    again = (np.diff(logs.height) == 0) & (np.diff(logs.log_index) == 0)
    return logs.take(np.flatnonzero(np.concatenate([[True], ~again]))) if again.any() else logs


def sorted_logs(parts: Sequence[Logs]) -> Logs:
    """Logs of several groups in the order of the chain."""
    logs = join([part for part in parts if len(part)])
    follows = np.diff(logs.height) * 2**32 + np.diff(logs.log_index) >= 0
    return logs if follows.all() else logs.take(np.lexsort((logs.log_index, logs.height)))
