"""Internal transfers: native coins that calls inside transactions move, without receipt or log.

Calls, creations and self-destructions move coins. Delegated and static calls move none, even if a trace shows a value,
and neither does anything below a failed call. The top-level call of a transaction is a row of the dataset `native`. A
contract that destroys itself in favour of itself counts as no transfer, although its coins were lost before Cancun.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa

from chainfolio.adapters.evm.datasets.common import CoinRow, coin_rows
from chainfolio.adapters.evm.forms import Address, Decimal256, DecimalHeight, Hash, MaybeAddress, MaybeHash, Word
from chainfolio.errors import BadAnswer
from chainfolio.transport.wire import typed

STANDARD = "internal"
# Calls nest up to 1,024 levels, two JSON levels each: more than the interpreter's default limit.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 4096))


@dataclass(frozen=True, slots=True)
class CoinTransfer:
    """Native coins that a call inside a transaction moved.

    `item` numbers the transfer within its transaction; 0 if all transfers of the transaction are known, in order.
    """

    tx_index: int
    sender: str
    recipient: str
    raw: int
    item: int = 0


@dataclass(frozen=True, slots=True)
class TracedBlock:
    """A block whose transactions are traced, with their hashes in order."""

    height: int
    time_s: int
    hash: str
    transactions: tuple[str, ...]


# --- flat traces: trace_block ----------------------------------------------------------------------------------------


class Action(msgspec.Struct, gc=False):
    """The call, creation or self-destruction of a trace. Self-destructions use the last three fields."""

    sender: MaybeAddress = msgspec.field(name="from", default="")
    to: Address | None = None
    value: Word = "0x0"
    callType: str = ""
    address: MaybeAddress = ""
    refundAddress: MaybeAddress = ""
    balance: Word = "0x0"


class CreateResult(msgspec.Struct, gc=False):
    """The result of a trace; `address` is the new contract of a creation."""

    address: Address | None = None


class Trace(msgspec.Struct, gc=False):
    """One entry of `trace_block`. The entry of a block reward has no transaction."""

    type: str
    action: Action
    traceAddress: list[int]
    blockHash: MaybeHash = ""
    transactionHash: Hash | None = None
    transactionPosition: int | None = None
    error: str | None = None
    result: CreateResult | None = None


def of_traces(source: str, answer: bytes, block: TracedBlock, first: int = 0) -> list[CoinTransfer]:
    """Return the coin transfers in an answer of `trace_block`, without those of failed calls.

    Rewards of blocks and the transactions' own values are left out. `tx_index` of a transfer counts from `first`: it is
    the index in `block.transactions`.

    Args:
        source: The endpoint that gave the answer.
        answer: The result as JSON.
        block: The block, with all transactions that were traced. They may be a contiguous part of the block.
        first: The index in the block of the first traced transaction.

    Raises:
        BadAnswer: The traces are of another block, out of order, or do not cover all transactions of `block`.
    """
    transfers: list[CoinTransfer] = []
    failed: dict[tuple[int, ...], bool] = {}
    roots = 0
    for trace in typed(source, answer, list[Trace]):
        if trace.transactionPosition is None:
            continue
        index, path = trace.transactionPosition - first, tuple(trace.traceAddress)
        if not path:
            _check_transaction(source, block, roots, index, trace.transactionHash)
            _check_block(source, block, trace.blockHash)
            roots, failed = roots + 1, {(): trace.error is not None}
            continue
        if index != roots - 1 or path[:-1] not in failed:
            raise BadAnswer(source, f"traces of block {block.height} that are out of order")
        failed[path] = failed[path[:-1]] or trace.error is not None
        if not failed[path]:
            transfers += coin_transfers(source, index, *value_of(trace))
    _check_count(source, block, roots)
    return transfers


def value_of(trace: Trace) -> tuple[str, str, int]:
    """Return sender, recipient and raw amount of a trace; empty addresses and 0 if it moves no coins.

    Addresses are as the node writes them, in any case. Whether the call failed is not considered.
    """
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
    """One call in an answer of the callTracer."""

    type: str
    sender: MaybeAddress = msgspec.field(name="from", default="")
    to: Address | None = None
    value: Word | None = None
    error: str | None = None
    calls: list[Frame] = []


class TransactionTrace(msgspec.Struct):
    """The trace of one transaction. Older nodes omit its hash."""

    result: Frame | None = None
    txHash: Hash | None = None
    error: str | None = None


VALUE_CALLS = frozenset({"CALL", "CREATE", "CREATE2", "SELFDESTRUCT"})


def of_frames(source: str, answer: bytes, block: TracedBlock) -> list[CoinTransfer]:
    """Return the coin transfers in an answer of `debug_traceBlockBy…` with the callTracer.

    Failed calls and the transactions' own values are left out.

    Raises:
        BadAnswer: The traces are of other transactions than those of `block`, or one is missing.
    """
    transfers: list[CoinTransfer] = []
    traces = typed(source, answer, list[TransactionTrace])
    _check_count(source, block, len(traces))
    for index, trace in enumerate(traces):
        _check_transaction(source, block, index, index, trace.txHash)
        if trace.result is None:
            raise BadAnswer(source, f"transaction {index} of block {block.height} is not traced")
        for frame in _value_frames(trace.result):
            transfers += coin_transfers(source, index, frame.sender, frame.to or "", int(frame.value or "0x0", 16))
    return transfers


def _value_frames(root: Frame) -> Iterator[Frame]:
    """Yield the successful calls below `root` that can move coins, in the order of execution."""
    stack = [] if root.error else root.calls[::-1]
    while stack:
        frame = stack.pop()
        if frame.error:
            continue
        if frame.type in VALUE_CALLS:
            yield frame
        stack += frame.calls[::-1]


# --- lists of explorers: txlistinternal -------------------------------------------------------------------------------


class ExplorerTransfer(msgspec.Struct, gc=False):
    """One row of `txlistinternal`. Numbers are decimal text."""

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


EXPLORER_VALUE_CALLS: Final = frozenset({"call", "create", "create2", "suicide", "selfdestruct"})


def of_explorer(source: str, rows: Sequence[ExplorerTransfer], block: TracedBlock) -> list[CoinTransfer]:
    """Return the coin transfers of one block from an explorer's rows, in the order of transactions.

    Rows of failed calls, without coins, or from an account to itself are left out.

    Raises:
        BadAnswer: The block does not have a row's transaction, a party is missing, or an amount exceeds 256 bits.
    """
    positions = {tx_hash: index for index, tx_hash in enumerate(block.transactions)}
    transfers = []
    for row in rows:
        tx_hash = (row.hash or row.transactionHash).lower()
        index = positions.get(tx_hash)
        if index is None:
            raise BadAnswer(source, f"lists a transaction in block {block.height} which that block does not have")
        if row.isError == "0" and row.type in EXPLORER_VALUE_CALLS and row.callType in ("", "call"):
            transfers += coin_transfers(source, index, row.sender, row.to or row.contractAddress, int(row.value))
    return sorted(transfers, key=lambda transfer: transfer.tx_index)


# --- checks ----------------------------------------------------------------------------------------------------------


def coin_transfers(source: str, index: int, sender: str, recipient: str, raw: int) -> list[CoinTransfer]:
    """Return one checked transfer of transaction `index`; none for no coins, or from an account to itself.

    Raises:
        BadAnswer: A party is missing, or the amount exceeds 256 bits.
    """
    if not raw or sender == recipient:
        return []
    if not sender or not recipient:
        raise BadAnswer(source, "a trace that moves coins and does not say from whom, or to whom")
    if raw.bit_length() > 256:
        raise BadAnswer(source, "a trace that moves more coins than 256 bits can count")
    return [CoinTransfer(index, sender.lower(), recipient.lower(), raw)]


def _check_block(source: str, block: TracedBlock, block_hash: str) -> None:
    if block_hash and block_hash.lower() != block.hash:
        raise BadAnswer(source, f"traces of block {block_hash} in answer to {block.hash}")


def _check_transaction(source: str, block: TracedBlock, expected: int, index: int, tx_hash: str | None) -> None:
    """Raise BadAnswer if `index` is not the expected one, or a given hash is not the block's there."""
    is_hashed = expected < len(block.transactions) and tx_hash is not None
    if index != expected or (is_hashed and str(tx_hash).lower() != block.transactions[expected]):
        raise BadAnswer(source, f"block {block.height} has another transaction at {expected} than its traces")


def _check_count(source: str, block: TracedBlock, count: int) -> None:
    if count != len(block.transactions):
        raise BadAnswer(
            source, f"block {block.height} has {len(block.transactions)} transactions, {count} of them are traced"
        )


# --- rows ------------------------------------------------------------------------------------------------------------


def rows(transfers_by_block: Mapping[TracedBlock, Sequence[CoinTransfer]], chain: str) -> pa.Table:
    """Return rows of `transfers` in the order of the blocks.

    `item` is that of the transfer, or else counts from 1 within each transaction.
    """
    coins: list[CoinRow] = []
    for block, transfers in transfers_by_block.items():
        counts = Counter[int]()
        for transfer in transfers:
            counts[transfer.tx_index] += 1
            coins.append(
                CoinRow(
                    block.height,
                    block.time_s,
                    transfer.tx_index,
                    transfer.item or counts[transfer.tx_index],
                    block.transactions[transfer.tx_index],
                    transfer.sender,
                    transfer.recipient,
                    transfer.raw,
                )
            )
    return coin_rows(coins, chain, STANDARD)
