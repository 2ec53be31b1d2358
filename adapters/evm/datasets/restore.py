"""Rebuild logs from stored rows, so that they can be decoded again without a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from chainfolio.adapters.evm import events
from chainfolio.adapters.evm.columns import bytes_of_hex, rows_of
from chainfolio.adapters.evm.logs import Bytes, Logs, join, untouched


def groups(rows: pa.Table, *names: str) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """Yield each distinct combination of values of the named columns with its rows, in a stable order."""
    encoded = [rows[name].combine_chunks().dictionary_encode("encode") for name in names]
    codes = np.zeros(len(rows), np.int64)
    for column in encoded:
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
    combinations = []
    for code in np.flatnonzero(np.bincount(codes)).tolist():
        values, quotient = [], code
        for column in reversed(encoded):
            quotient, index = divmod(quotient, len(column.dictionary))
            values.append(column.dictionary[index].as_py())
        combinations.append((tuple(reversed(values)), code))
    for combination, code in sorted(combinations, key=lambda pair: str(pair[0])):
        yield combination, rows if len(combinations) == 1 else rows.filter(pa.array(codes == code))


def logs_without_data(rows: pa.Table, topic0: str) -> Logs:
    """Return one log per row with the topic `topic0` and no data; the caller adds the rest in place.

    Args:
        rows: With the columns `height`, `tx_index`, `log_index`, `time` and `tx_hash`, and the contract as `token`.
    """
    n = len(rows)
    hashes, topics = np.zeros((n, 0), np.uint8), [untouched(n) for _ in range(4)]
    topics[0] = np.broadcast_to(np.frombuffer(topic0.encode(), np.uint8), (n, 66))
    height, tx_index, log_index = (
        rows[name].to_numpy().astype(np.int64) for name in ("height", "tx_index", "log_index")
    )
    return Logs(
        height,
        tx_index,
        log_index,
        rows["time"].cast(pa.int64()).to_numpy() // 1_000_000,
        rows_of(rows["token"], 42)[0],
        rows_of(rows["tx_hash"], 66)[0],
        hashes,
        np.ones(n, np.int64),
        topics,
        np.zeros(n, np.int64),
        np.zeros((n, 32), np.uint8),
        {},
    )


def put_topic(logs: Logs, k: int, topics: Bytes) -> None:
    """Set the topic at position `k` of all logs, in place."""
    logs.topics[k] = topics
    logs.topic_count = np.maximum(logs.topic_count, k + 1)


def into_data(logs: Logs, parties: Sequence[Bytes], amounts: Bytes, indexed: int) -> None:
    """Write the first `indexed` parties into topics, the others and the amount into the data, in place."""
    for k in range(indexed):
        put_topic(logs, k + 1, parties[k])
    columns = [bytes_of_hex(party[:, 2:]) for party in parties[indexed:]] + [amounts]
    for row in range(len(logs)):
        logs.other[row] = b"".join(column[row].tobytes() for column in columns)
        logs.data_size[row] = len(logs.other[row])


def multi(rows: pa.Table, *, batch: bool) -> Logs:
    """Return ERC-1155 logs; with `batch`, consecutive rows of one log are merged into a TransferBatch."""
    items = rows["item"].to_numpy()
    first = np.flatnonzero(items == 0)
    logs = logs_without_data(rows.take(pa.array(first)), events.TRANSFER_BATCH if batch else events.TRANSFER_SINGLE)
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
    """Return the ABI encoding of two arrays of `count` words each, from all their words in sequence."""
    head, second, size = (value.to_bytes(32, "big") for value in (64, 96 + 32 * count, count))
    return head + second + size + items[: 32 * count] + size + items[32 * count :]


def without_duplicates(logs: Logs) -> Logs:
    """Return sorted logs without repetitions: decoding that was interrupted leaves one log in two tables."""
    is_repeated = (np.diff(logs.height) == 0) & (np.diff(logs.log_index) == 0)
    return logs.take(np.flatnonzero(np.concatenate([[True], ~is_repeated]))) if is_repeated.any() else logs


def sorted_logs(parts: Sequence[Logs]) -> Logs:
    """Merge groups of logs into the order of the chain."""
    logs = join([part for part in parts if len(part)])
    is_sorted = np.diff(logs.height) * 2**32 + np.diff(logs.log_index) >= 0
    return logs if is_sorted.all() else logs.take(np.lexsort((logs.log_index, logs.height)))
