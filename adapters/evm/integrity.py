"""Check answers: parent links, block hashes, log blooms, and the filter itself.

A bloom says "not here" for certain and "maybe here" otherwise. So a log that its block's bloom denies is false, and a
block without logs, although its bloom may hold some, is asked for again by its hash: that is how the answer of a
backend looks that does not have the block yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from sha3 import keccak_256

from chainfolio.adapters.evm.logs import Logs, rows_by_address
from chainfolio.adapters.evm.node import Header
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, Reorged

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Query:
    """A selection of logs: any of these first topics, from any of these contracts (from all if empty)."""

    topics: tuple[str, ...]
    contracts: tuple[str, ...] = ()

    def filter(self) -> dict[str, object]:
        """Return the filter object of `eth_getLogs`, without its span."""
        by_contract = {"address": list(self.contracts)} if self.contracts else {}
        return {"topics": [list(self.topics)], **by_contract}


@lru_cache(maxsize=65_536)
def bloom_bits(value: str) -> tuple[tuple[int, int], ...]:
    """Return the three bits, as (byte, mask), that an address or topic sets in a 2,048-bit bloom."""
    digest = keccak_256(bytes.fromhex(value[2:])).digest()
    bits = (int.from_bytes(digest[k : k + 2], "big") & 2047 for k in (0, 2, 4))
    return tuple((255 - bit // 8, 1 << bit % 8) for bit in bits)


def blooms(headers: Sequence[Header]) -> npt.NDArray[np.uint8]:
    """Return the blooms of headers as rows of 256 bytes."""
    return blooms_of([header.logsBloom for header in headers])


def blooms_of(texts: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Return blooms, given as hex text, as rows of 256 bytes."""
    joined = "".join(text[2:] for text in texts)
    return np.frombuffer(bytes.fromhex(joined), np.uint8).reshape(len(texts), 256)


def may_hold(rows: npt.NDArray[np.uint8], value: str) -> Mask:
    """Return a mask of the blooms that may hold an address or topic."""
    mask = np.ones(len(rows), np.bool_)
    for byte, bit in bloom_bits(value):
        mask &= (rows[:, byte] & bit) != 0
    return mask


def explains(logs: Logs, header: Header) -> bool:
    """Return True if the logs of a block set every bit of its bloom, so that none is missing.

    Args:
        logs: All logs of this block and no others.
    """
    bloom = bytearray(256)
    values = {address.tobytes().decode() for address in logs.address}
    for topic_number, topics in enumerate(logs.topics):
        values |= {topics[k].tobytes().decode() for k in np.flatnonzero(logs.topic_count > topic_number)}
    for byte, bit in (bits for value in values for bits in bloom_bits(value)):
        bloom[byte] |= bit
    promised = bytes.fromhex(header.logsBloom[2:])
    return not any(promised_bits & ~set_bits for promised_bits, set_bits in zip(promised, bloom, strict=True))


def check_links(source: str, headers: Sequence[Header], before: Block | None) -> None:
    """Check that every header names the one before as its parent; `before` is the last stored block.

    A header whose height does not follow that of the one before is not checked.

    Raises:
        Reorged: The first header does not follow `before`.
        BadAnswer: Another one does not follow its predecessor.
    """
    parent = before
    for header in headers:
        if parent is not None and header.height == parent.height + 1 and header.parentHash != parent.hash:
            if parent is before:
                raise Reorged(source, parent.height, parent.hash)
            raise BadAnswer(source, f"block {header.height} does not follow block {parent.height}: another parent hash")
        parent = header.block()


def check_logs(
    source: str, logs: Logs, headers: Sequence[Header], query: Query, *, bloom: bool = True
) -> npt.NDArray[np.int64]:
    """Check logs and fill in their times; return the heights that seem to lack logs.

    `headers` are those of all blocks of the span, in order. Without `bloom` (some chains leave theirs empty), no height
    seems to lack logs.

    Raises:
        BadAnswer: A log cannot be true.
        Reorged: A log has another block hash than its header.
    """
    first = headers[0].height
    if len(logs):
        _check_places(source, logs, headers, first)
    _check_filter(source, logs, query)
    if not bloom:
        return np.zeros(0, np.int64)
    rows = blooms(headers)
    _check_blooms(source, logs, rows, first, query)
    lacks_logs = np.ones(len(headers), np.bool_)
    lacks_logs[logs.height - first] = False
    return np.flatnonzero(lacks_logs & _promised(rows, query)) + first


def _promised(rows: npt.NDArray[np.uint8], query: Query) -> Mask:
    """Return a mask of the blooms that may hold a log of the query."""
    topic, contract = (np.zeros(len(rows), np.bool_) for _ in range(2))
    for value in query.topics:
        topic |= may_hold(rows, value)
    for value in query.contracts:
        contract |= may_hold(rows, value)
    return topic & contract if query.contracts else topic


def _check_places(source: str, logs: Logs, headers: Sequence[Header], first: int) -> None:
    """Fill in the times of logs, after checking them against the headers of the span.

    Raises BadAnswer for a log outside of it or with another time, Reorged for another hash.
    """
    index = logs.height - first
    if index.min() < 0 or index.max() >= len(headers):
        raise BadAnswer(source, "logs from outside the span that was asked for")
    hashes = np.frombuffer("".join(header.hash for header in headers).encode(), np.uint8).reshape(-1, 66)
    wrong = logs.block_hash.view("V66").ravel() != hashes.view("V66").ravel()[index]
    if wrong.any():
        height = int(logs.height[np.flatnonzero(wrong)[0]])
        raise Reorged(source, height, headers[height - first].hash)
    times = np.array([header.time_s for header in headers], np.int64)[index]
    if ((logs.time_s >= 0) & (logs.time_s != times)).any():
        raise BadAnswer(source, "a log with another time than its block")
    logs.time_s[:] = times


def _check_filter(source: str, logs: Logs, query: Query) -> None:
    """Raise BadAnswer for logs that the query does not select.

    A node that ignores the filter would fill the tables with unwanted logs, and hide what it left out.
    """
    selected = np.zeros(len(logs), np.bool_)
    for topic in query.topics:
        selected |= logs.of(topic)
    if not selected.all():
        raise BadAnswer(source, "logs of other events than were asked for: the node ignores the filter")
    if query.contracts:
        contracts = np.array([contract.encode() for contract in query.contracts], "S42")
        if not np.isin(logs.address.view("S42").ravel(), contracts).all():
            raise BadAnswer(source, "logs of other contracts than were asked for: the node ignores the filter")


def _check_blooms(source: str, logs: Logs, rows: npt.NDArray[np.uint8], first: int, query: Query) -> None:
    """Raise BadAnswer for a log whose contract or first topic is not in the bloom of its block.

    Args:
        rows: The blooms of the blocks from height `first` on.
    """
    if len(logs) == 0:
        return
    index = logs.height - first
    for contract, rows_of_contract in rows_by_address(logs.address):
        if not may_hold(rows, contract)[index[rows_of_contract]].all():
            raise BadAnswer(source, f"a log of {contract} in a block whose bloom denies it")
    for topic in query.topics:
        if not may_hold(rows, topic)[index[logs.of(topic)]].all():
            raise BadAnswer(source, f"a log with topic {topic} in a block whose bloom denies it")


def check_headers(source: str, logs: Logs, headers: Sequence[Header], *, final: bool, with_blooms: bool) -> None:
    """Check hash, time and bloom of each log against its header, and fill in missing times.

    Blooms are checked if `with_blooms`. A log of a block without a header in `headers` is not checked.

    Raises:
        Reorged: A log of a block that is not final has another block hash.
        BadAnswer: A log contradicts its header.
    """
    rows_by_height = {header.height: row for row, header in enumerate(headers)}
    bloom_rows = blooms(headers)
    for k in range(len(logs)):
        row = rows_by_height.get(int(logs.height[k]))
        if row is None:
            continue  # integrity is off, and the log has a time
        header = headers[row]
        if logs.block_hash[k].tobytes().decode() != header.hash:
            if not final:
                raise Reorged(source, header.height, header.hash)
            raise BadAnswer(source, f"a log of another block {header.height} than the one on its chain")
        if int(logs.time_s[k]) not in (-1, header.time_s):
            raise BadAnswer(source, "a log with another time than its block")
        logs.time_s[k] = header.time_s
        if with_blooms:
            address = logs.address[k].tobytes().decode()
            if not may_hold(bloom_rows[row][None, :], address).all():
                raise BadAnswer(source, f"a log of {address} in a block whose bloom denies it")
