"""Logs as NumPy columns, in the order of the chain. `log_parser.py` makes them from answers of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

_COLUMNS = (
    "height",
    "tx_index",
    "log_index",
    "time_s",
    "address",
    "tx_hash",
    "block_hash",
    "topic_count",
    "data_size",
    "word",
)


@dataclass(slots=True)
class Logs:
    """Logs as columns, in the order of the chain.

    Text columns are (n, width) ASCII; `time_s` is -1 if the log has no time. `word` is the data of logs that carry
    exactly 32 bytes; any other data is in `other` by row. `topics[k]` is only meaningful where `topic_count > k`.
    Columns without information may be narrower, or share one row: do not write to them.
    """

    height: Ints
    tx_index: Ints
    log_index: Ints
    time_s: Ints
    address: Bytes
    tx_hash: Bytes
    block_hash: Bytes
    topic_count: Ints
    topics: list[Bytes]
    data_size: Ints
    word: Bytes
    other: dict[int, bytes]
    _first: npt.NDArray[np.uint64] | None = None
    _of: dict[str, Mask] = field(default_factory=dict)

    @property
    def first(self) -> npt.NDArray[np.uint64]:
        """The first eight hex digits of the first topic, as one number, to tell events apart."""
        if self._first is None:
            self._first = np.ascontiguousarray(self.topics[0][:, 2:10]).view(np.uint64).ravel()
        return self._first

    @property
    def most_topics(self) -> int:
        """The largest number of topics of a log."""
        return int(self.topic_count.max(initial=0))

    def of(self, topic: str) -> Mask:
        """Return a mask of the logs with this first topic; it is cached and must not be written to.

        It compares eight bytes first, and the rest only if those are equal.
        """
        if topic not in self._of:
            target = np.frombuffer(topic.encode(), np.uint8)
            mask = (self.first == target[2:10].view(np.uint64)[0]) & (self.topic_count > 0)
            if mask.any():
                candidates = np.flatnonzero(mask)
                mask[candidates] = pick(self.topics[0], candidates).view("V66").ravel() == target.view("V66")[0]
            self._of[topic] = mask
        return self._of[topic]

    def __len__(self) -> int:
        return len(self.height)

    @classmethod
    def blank(cls, n: int) -> Logs:
        """Return `n` rows to be filled."""
        height, tx_index, log_index, time_s = (np.full(n, -1, np.int64) for _ in range(4))
        address, tx_hash, block_hash = (np.zeros((n, width), np.uint8) for width in (42, 66, 66))
        topics = [np.zeros((n, 66), np.uint8) for _ in range(4)]
        word = np.zeros((n, 32), np.uint8)
        count, size = np.zeros(n, np.int64), np.zeros(n, np.int64)
        return cls(height, tx_index, log_index, time_s, address, tx_hash, block_hash, count, topics, size, word, {})

    def take(self, rows: Rows) -> Logs:
        """Return the given rows, in the given order, as new logs."""
        new_rows = {int(old): new for new, old in enumerate(rows)} if self.other else {}
        topic_width = self.most_topics
        topics = [pick(topic, rows) if k < topic_width else untouched(len(rows)) for k, topic in enumerate(self.topics)]
        return Logs(
            self.height[rows],
            self.tx_index[rows],
            self.log_index[rows],
            self.time_s[rows],
            pick(self.address, rows),
            pick(self.tx_hash, rows),
            pick(self.block_hash, rows),
            self.topic_count[rows],
            topics,
            self.data_size[rows],
            pick(self.word, rows),
            {new_rows[row]: data for row, data in self.other.items() if row in new_rows},
        )

    def data(self, row: int) -> bytes:
        """Return the data of one log."""
        return self.word[row].tobytes() if self.data_size[row] == 32 else self.other.get(row, b"")


def untouched(n: int) -> Bytes:
    """Return topics that no log has: one row of zeros, `n` times, without memory for each."""
    return np.broadcast_to(np.zeros(66, np.uint8), (n, 66))


def join(parts: Sequence[Logs]) -> Logs:
    """Return several parts as one, in the order given, without sorting; no logs for no parts."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Logs.blank(0)
    other_data, offset = {}, 0
    for part in parts:
        other_data.update({offset + row: data for row, data in part.other.items()})
        offset += len(part)
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    topic_width = max(part.most_topics for part in parts)
    topics = [
        np.concatenate([part.topics[k] for part in parts]) if k < topic_width else untouched(offset) for k in range(4)
    ]
    return Logs(**columns, topics=topics, other=other_data)


def gather(buffer: Bytes, starts: Rows | Ints, width: int) -> Bytes:
    """Return the `width` bytes that begin at each start, as rows: one memory copy a row."""
    window = np.ndarray(shape=(len(buffer) - width + 1,), dtype=f"V{width}", buffer=buffer.data, strides=(1,))
    return window[starts].view(np.uint8).reshape(len(starts), width)


def pick(column: Bytes, rows: Rows) -> Bytes:
    """Return some rows of a matrix, copied as whole rows, which NumPy's own indexing does not do."""
    width = column.shape[1]
    if width == 0:
        return np.zeros((len(rows), 0), np.uint8)
    return np.ascontiguousarray(column).view(f"V{width}").ravel()[rows].view(np.uint8).reshape(len(rows), width)


_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 1)


def rows_by_address(addresses: Bytes) -> Iterator[tuple[str, Rows]]:
    """Yield each distinct address of a column, and the rows where it stands; nothing for no rows.

    Addresses come in no order, and one may come twice with different rows.
    """
    if len(addresses) == 0:
        return
    # Sorted by a hash, because numbers sort ten times faster than texts. If two addresses share a hash, one may come
    # twice, in parts.
    qwords = np.ascontiguousarray(addresses[:, 2:]).view(np.uint64)
    hashes = np.zeros(len(qwords), np.uint64)
    for k, factor in enumerate(_MIX):
        hashes += qwords[:, k] * np.uint64(factor)
    order = np.argsort(hashes)
    sorted_words = qwords[order]
    changes = np.flatnonzero((sorted_words[1:] != sorted_words[:-1]).any(axis=1)) + 1
    for rows in np.split(order, changes):
        yield addresses[rows[0]].tobytes().decode(), rows


def _put(column: Bytes, rows: Rows, values: Bytes) -> None:
    kind = f"V{column.shape[1]}"
    column.view(kind).ravel()[rows] = np.ascontiguousarray(values).view(kind).ravel()
