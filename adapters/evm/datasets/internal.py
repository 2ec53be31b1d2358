"""Native coins that calls inside transactions moved, from the traces of a block: what no receipt and no log tells.

A call, a creation and a self-destruction move coins; a delegated or static call moves none, whatever value it shows;
nothing that lies below a failed call has moved. The call of the transaction itself is a row of `native`. A contract
that destroys itself in favour of itself is no movement, though before Cancun its coins were gone.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa

from adapters.evm.datasets.common import Coins, coin_rows
from adapters.evm.forms import Address, Decimal256, DecimalHeight, Hash, MaybeAddress, MaybeHash, Word
from chainfolio.errors import BadAnswer
from transport.wire import typed

STANDARD = "internal"
# Calls nest up to 1,024 deep, two JSON levels each: more than what the interpreter allows by itself.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 4096))


@dataclass(frozen=True, slots=True)
class Moved:
    """Native coins that went from one account to another inside a transaction. `item` is its number there; 0 where all
    movements of the transaction are known, and counted."""

    tx_index: int
    sender: str
    recipient: str
    raw: int
    item: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """A block whose inside is asked for, with the hashes of its transactions."""

    height: int
    time_s: int
    hash: str
    transactions: tuple[str, ...]


# --- flat traces: trace_block ----------------------------------------------------------------------------------------


class Action(msgspec.Struct, gc=False):
    """What was done. A self-destruction names its parts differently."""

    sender: MaybeAddress = msgspec.field(name="from", default="")
    to: Address | None = None
    value: Word = "0x0"
    callType: str = ""
    address: MaybeAddress = ""
    refundAddress: MaybeAddress = ""
    balance: Word = "0x0"


class Created(msgspec.Struct, gc=False):
    """What came of it: only a creation says where."""

    address: Address | None = None


class Trace(msgspec.Struct, gc=False):
    """One entry of `trace_block`; a block's reward has no transaction."""

    type: str
    action: Action
    traceAddress: list[int]
    blockHash: MaybeHash = ""
    transactionHash: Hash | None = None
    transactionPosition: int | None = None
    error: str | None = None
    result: Created | None = None


def of_traces(source: str, answer: bytes, place: Place, first: int = 0) -> list[Moved]:
    """The movements in an answer of `trace_block`; BadAnswer where it is not about that block, or not about all. The
    transactions of a place may be some that lie together in the block: `first` is the position of the first of them."""
    found: list[Moved] = []
    failed: dict[tuple[int, ...], bool] = {}
    roots = 0
    for trace in typed(source, answer, list[Trace]):
        if trace.transactionPosition is None:
            continue
        index, path = trace.transactionPosition - first, tuple(trace.traceAddress)
        if not path:
            _check_transaction(source, place, roots, index, trace.transactionHash)
            _check_block(source, place, trace.blockHash)
            roots, failed = roots + 1, {(): trace.error is not None}
            continue
        if index != roots - 1 or path[:-1] not in failed:
            raise BadAnswer(source, f"traces of block {place.height} that are out of order")
        failed[path] = failed[path[:-1]] or trace.error is not None
        if not failed[path]:
            found += movements(source, index, *boundaries(trace))
    _check_count(source, place, roots)
    return found


def boundaries(trace: Trace) -> tuple[str, str, int]:
    """Who gave, who got and how much; nothing for what moves none."""
    action = trace.action
    if trace.type == "suicide":
        return action.address, action.refundAddress, int(action.balance, 16)
    if trace.type == "create":
        return action.sender, (trace.result and trace.result.address) or "", int(action.value, 16)
    if trace.type == "call" and action.callType == "call":
        return action.sender, action.to or "", int(action.value, 16)
    return "", "", 0


# --- nested traces: the callTracer -----------------------------------------------------------------------------------


class Frame(msgspec.Struct):
    """One call as the callTracer tells it."""

    type: str
    sender: MaybeAddress = msgspec.field(name="from", default="")
    to: Address | None = None
    value: Word | None = None
    error: str | None = None
    calls: list[Frame] = []


class Traced(msgspec.Struct):
    """The trace of one transaction; older nodes do not say of which."""

    result: Frame | None = None
    txHash: Hash | None = None
    error: str | None = None


MOVING = frozenset({"CALL", "CREATE", "CREATE2", "SELFDESTRUCT"})


def of_frames(source: str, answer: bytes, place: Place) -> list[Moved]:
    """The movements in an answer of `debug_traceBlockBy…` with the callTracer; BadAnswer as `of_traces`."""
    found: list[Moved] = []
    every = typed(source, answer, list[Traced])
    _check_count(source, place, len(every))
    for index, traced in enumerate(every):
        _check_transaction(source, place, index, index, traced.txHash)
        if traced.result is None:
            raise BadAnswer(source, f"transaction {index} of block {place.height} is not traced")
        for frame in _inside(traced.result):
            found += movements(source, index, frame.sender, frame.to or "", int(frame.value or "0x0", 16))
    return found


def _inside(root: Frame) -> Iterator[Frame]:
    """The calls below one, in the order they were made, without those that were undone; no recursion."""
    waiting = [] if root.error else root.calls[::-1]
    while waiting:
        frame = waiting.pop()
        if frame.error:
            continue
        if frame.type in MOVING:
            yield frame
        waiting += frame.calls[::-1]


# --- lists of explorers: txlistinternal -------------------------------------------------------------------------------


class Listed(msgspec.Struct, gc=False):
    """One row of `txlistinternal`: numbers are decimal text."""

    value: Decimal256
    blockNumber: DecimalHeight
    sender: Address = msgspec.field(name="from")
    to: MaybeAddress = ""
    hash: MaybeHash = ""
    transactionHash: MaybeHash = ""
    contractAddress: MaybeAddress = ""
    type: str = "call"
    callType: str = ""
    isError: str = "0"


LISTED_AS: Final = frozenset({"call", "create", "create2", "suicide", "selfdestruct"})


def of_list(source: str, listed: Sequence[Listed], place: Place) -> list[Moved]:
    """The movements of one block in rows that an explorer lists; BadAnswer where one is of no transaction of it."""
    positions = {tx_hash: index for index, tx_hash in enumerate(place.transactions)}
    found = []
    for row in listed:
        tx_hash = (row.hash or row.transactionHash).lower()
        index = positions.get(tx_hash)
        if index is None:
            raise BadAnswer(source, f"lists a transaction in block {place.height} which that block does not have")
        moves = row.isError == "0" and row.type in LISTED_AS and row.callType in ("", "call")
        if moves:
            found += movements(source, index, row.sender, row.to or row.contractAddress, int(row.value))
    return sorted(found, key=lambda moved: moved.tx_index)


# --- checks ----------------------------------------------------------------------------------------------------------


def movements(source: str, index: int, sender: str, recipient: str, raw: int) -> list[Moved]:
    if not raw or sender == recipient:
        return []
    if not sender or not recipient:
        raise BadAnswer(source, "a trace that moves coins and does not say from whom, or to whom")
    if raw.bit_length() > 256:
        raise BadAnswer(source, "a trace that moves more coins than 256 bits can count")
    return [Moved(index, sender.lower(), recipient.lower(), raw)]


def _check_block(source: str, place: Place, block_hash: str) -> None:
    if block_hash and block_hash.lower() != place.hash:
        raise BadAnswer(source, f"traces of block {block_hash} in answer to {place.hash}")


def _check_transaction(source: str, place: Place, want: int, index: int, tx_hash: str | None) -> None:
    known = want < len(place.transactions) and tx_hash is not None
    if index != want or (known and str(tx_hash).lower() != place.transactions[want]):
        raise BadAnswer(source, f"block {place.height} has another transaction at {want} than its traces")


def _check_count(source: str, place: Place, count: int) -> None:
    if count != len(place.transactions):
        raise BadAnswer(
            source, f"block {place.height} has {len(place.transactions)} transactions, {count} of them are traced"
        )


# --- rows ------------------------------------------------------------------------------------------------------------


def rows(blocks: Mapping[Place, Sequence[Moved]], chain: str) -> pa.Table:
    """Rows of `transfers`, in the order of the chain: `item` counts from 1 inside a transaction, 0 is its own value."""
    found: list[Coins] = []
    for place, moves in blocks.items():
        item = Counter[int]()
        for moved in moves:
            item[moved.tx_index] += 1
            number = moved.item or item[moved.tx_index]
            found.append(Coins(
                place.height, place.time_s, moved.tx_index, number, place.transactions[moved.tx_index],
                moved.sender, moved.recipient, moved.raw,
            ))  # fmt: skip
    return coin_rows(found, chain, STANDARD)
