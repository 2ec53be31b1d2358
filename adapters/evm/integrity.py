"""What an answer is checked against before it is believed: parent links, block hashes, log blooms, the filter itself.

A bloom can say "not here" for certain and "maybe here" otherwise. So a log whose block's bloom denies it is a lie, and
a block that came without any log, though its bloom may hold what was asked for, is asked again by its hash: that is
what a backend looks like that does not have the block yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from sha3 import keccak_256

from adapters.evm.logs import Logs, alike
from adapters.evm.node import Header
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, Reorged

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Query:
    """Which logs are wanted: any of these first topics, from any of these contracts (none named: from all)."""

    topics: tuple[str, ...]
    contracts: tuple[str, ...] = ()

    def filter(self) -> dict[str, Any]:
        """The filter object of `eth_getLogs`, without its span."""
        by_contract = {"address": list(self.contracts)} if self.contracts else {}
        return {"topics": [list(self.topics)], **by_contract}


@lru_cache(maxsize=65_536)
def bloom_bits(value: str) -> tuple[tuple[int, int], ...]:
    """The three (byte, bit mask) places that an address or topic sets in a 2,048-bit bloom."""
    digest = keccak_256(bytes.fromhex(value[2:])).digest()
    places = (int.from_bytes(digest[k : k + 2], "big") & 2047 for k in (0, 2, 4))
    return tuple((255 - place // 8, 1 << place % 8) for place in places)


def blooms(headers: Sequence[Header]) -> npt.NDArray[np.uint8]:
    """The blooms of some headers as rows of 256 bytes."""
    return blooms_of([header.logsBloom for header in headers])


def blooms_of(texts: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Some blooms, written as hex, as rows of 256 bytes."""
    joined = "".join(text[2:] for text in texts)
    return np.frombuffer(bytes.fromhex(joined), np.uint8).reshape(len(texts), 256)


def may_hold(rows: npt.NDArray[np.uint8], value: str) -> Mask:
    """Which blooms may hold an address or topic."""
    mask = np.ones(len(rows), np.bool_)
    for byte, bit in bloom_bits(value):
        mask &= (rows[:, byte] & bit) != 0
    return mask


def explains(logs: Logs, header: Header) -> bool:
    """Whether some logs of a block set all that its bloom says: what they do not set, others did, which are missing."""
    bloom = bytearray(256)
    values = {each.tobytes().decode() for each in logs.address}
    for place, topics in enumerate(logs.topics):
        values |= {topics[k].tobytes().decode() for k in np.flatnonzero(logs.topic_count > place)}
    for byte, bit in (places for value in values for places in bloom_bits(value)):
        bloom[byte] |= bit
    promised = bytes.fromhex(header.logsBloom[2:])
    return not any(has & ~own for has, own in zip(promised, bloom, strict=True))


def check_links(source: str, headers: Sequence[Header], before: Block | None) -> None:
    """Every header names the one before as its parent; `before` is the last block already kept."""
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
    """Raise on logs that cannot be true; give back the heights whose logs seem to be missing. Times are filled in.

    Without `bloom` (some chains leave theirs empty) none is looked at, and nothing can seem to be missing.
    """
    first = headers[0].height
    if len(logs):
        _check_places(source, logs, headers, first)
    _check_filter(source, logs, query)
    if not bloom:
        return np.zeros(0, np.int64)
    rows = blooms(headers)
    _check_blooms(source, logs, rows, first, query)
    silent = np.ones(len(headers), np.bool_)
    silent[logs.height - first] = False
    return np.flatnonzero(silent & _promised(rows, query)) + first


def _promised(rows: npt.NDArray[np.uint8], query: Query) -> Mask:
    """Which blooms may hold what a query asks for: one of its topics, from one of its contracts."""
    topic, contract = (np.zeros(len(rows), np.bool_) for _ in range(2))
    for value in query.topics:
        topic |= may_hold(rows, value)
    for value in query.contracts:
        contract |= may_hold(rows, value)
    return topic & contract if query.contracts else topic


def _check_places(source: str, logs: Logs, headers: Sequence[Header], first: int) -> None:
    """Logs lie in the span, carry the hash of their block, and its time."""
    at = logs.height - first
    if at.min() < 0 or at.max() >= len(headers):
        raise BadAnswer(source, "logs from outside the span that was asked for")
    hashes = np.frombuffer("".join(header.hash for header in headers).encode(), np.uint8).reshape(-1, 66)
    wrong = logs.block_hash.view("V66").ravel() != hashes.view("V66").ravel()[at]
    if wrong.any():
        height = int(logs.height[np.flatnonzero(wrong)[0]])
        raise Reorged(source, height, headers[height - first].hash)
    times = np.array([header.time_s for header in headers], np.int64)[at]
    if ((logs.time_s >= 0) & (logs.time_s != times)).any():
        raise BadAnswer(source, "a log with another time than its block")
    logs.time_s[:] = times


def _check_filter(source: str, logs: Logs, query: Query) -> None:
    """A node that ignores a filter would fill the tables with what nobody asked for, and hide what it left out."""
    asked = np.zeros(len(logs), np.bool_)
    for topic in query.topics:
        asked |= logs.of(topic)
    if not asked.all():
        raise BadAnswer(source, "logs of other events than were asked for: the node ignores the filter")
    if query.contracts:
        wanted = np.array([contract.encode() for contract in query.contracts], "S42")
        if not np.isin(logs.address.view("S42").ravel(), wanted).all():
            raise BadAnswer(source, "logs of other contracts than were asked for: the node ignores the filter")


def _check_blooms(source: str, logs: Logs, rows: npt.NDArray[np.uint8], first: int, query: Query) -> None:
    """Each log's contract and first topic must be in the bloom of its block."""
    if len(logs) == 0:
        return
    at = logs.height - first
    for contract, here in alike(logs.address):
        if not may_hold(rows, contract)[at[here]].all():
            raise BadAnswer(source, f"a log of {contract} in a block whose bloom denies it")
    for topic in query.topics:
        if not may_hold(rows, topic)[at[logs.of(topic)]].all():
            raise BadAnswer(source, f"a log with topic {topic} in a block whose bloom denies it")
