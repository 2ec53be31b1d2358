"""Transactions with what their receipts say, and the native coins they moved, from full blocks and block receipts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from adapters.evm.columns import constant, of_ints, table, times
from adapters.evm.datasets.common import NOBODY, Coins, coin_rows
from adapters.evm.forms import (
    Address,
    Data,
    Gas,
    Hash,
    Height,
    MaybeAddress,
    MaybeBloom,
    MaybeHash,
    Price,
    Scalar,
    Seconds,
    Status,
    Word,
)
from adapters.evm.node import Header, Withdrawal
from chainfolio.errors import BadAnswer
from chainfolio.tables import TRANSACTIONS
from transport.wire import typed

MINTED = -1  # the item of a mint: before the transaction's own value


class Transaction(msgspec.Struct, gc=False):
    """One transaction of a full block. `mint`: coins that came from another chain to its sender, whatever became of
    it."""

    hash: Hash
    sender: Address = msgspec.field(name="from")
    value: Word
    nonce: Gas
    input: Data
    to: Address | None = None
    type: Height = "0x0"
    gasPrice: Price | None = None
    transactionIndex: Height | None = None
    mint: Word | None = None


class FullBlock(msgspec.Struct):
    """A block with its transactions."""

    number: Height
    hash: Hash
    timestamp: Seconds
    transactions: list[Transaction]
    withdrawals: list[Withdrawal] | None = None
    withdrawalsRoot: MaybeHash = ""
    miner: MaybeAddress = ""
    gasLimit: Gas = "0x0"
    baseFeePerGas: Word | None = None
    mixHash: MaybeHash = ""
    logsBloom: MaybeBloom = ""

    @property
    def height(self) -> int:
        """The height as a number."""
        return int(self.number, 16)

    @property
    def time_s(self) -> int:
        """Unix seconds."""
        return int(self.timestamp, 16)


class Receipt(msgspec.Struct, gc=False):
    """What became of a transaction. L1 and blob fields are the extra costs of rollups and blobs."""

    transactionHash: Hash
    transactionIndex: Height
    blockHash: Hash
    gasUsed: Gas
    status: Status | None = None
    effectiveGasPrice: Price | None = None
    contractAddress: Address | None = None
    l1Fee: Price | None = None
    operatorFeeScalar: Scalar | None = None
    operatorFeeConstant: Scalar | None = None
    daFootprintGasScalar: Scalar | None = None
    blobGasUsed: Gas | None = None
    blobGasPrice: Price | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """A transaction and its receipt, in numbers."""

    height: int
    time_s: int
    index: int
    sent: Transaction
    receipt: Receipt
    gas_used: int
    gas_price: int
    fee: int
    status: int | None

    @property
    def recipient(self) -> str | None:
        """Where the coins went: the callee, or the contract that was created."""
        to = self.sent.to or self.receipt.contractAddress
        return to.lower() if to else None

    @property
    def minted(self) -> int:
        """What came to its sender from another chain."""
        return int(self.sent.mint or "0x0", 16)


def done_key(done: Done) -> Hashable:
    """What two equal ones share: everything that is stored of them."""
    sent, receipt = done.sent, done.receipt
    who = tuple(text and text.lower() for text in (sent.hash, sent.sender, sent.to, receipt.contractAddress))
    numbers = (done.height, done.time_s, done.index, done.gas_used, done.gas_price, done.fee, done.status, done.minted)
    return (*who, *numbers, sent.value, sent.nonce, sent.input.lower(), int(sent.type, 16))


def done(source: str, block: bytes, receipts: bytes, header: Header) -> list[Done]:
    """The transactions of one block with their receipts; BadAnswer where header, block and receipts do not belong
    together."""
    full, given = typed(source, block, FullBlock), typed(source, receipts, list[Receipt])
    height, time_s = header.height, header.time_s
    if full.hash.lower() != header.hash:
        raise BadAnswer(source, f"block {height} is {full.hash} in one answer and {header.hash} in another")
    if (int(full.number, 16), int(full.timestamp, 16)) != (height, time_s):
        raise BadAnswer(source, f"block {height} has another height or time than its header")
    if len({sent.hash.lower() for sent in full.transactions}) < len(full.transactions):
        raise BadAnswer(source, f"block {height} has a transaction twice")
    if len(given) != len(full.transactions):
        raise BadAnswer(source, f"block {height} has {len(full.transactions)} transactions and {len(given)} receipts")
    pairs = enumerate(zip(full.transactions, given, strict=True))
    return [matched(source, full, index, sent, receipt) for index, (sent, receipt) in pairs]


def matched(source: str, full: FullBlock, index: int, sent: Transaction, receipt: Receipt) -> Done:
    """A transaction of a block with its receipt; BadAnswer where they do not belong together."""
    height, time_s = int(full.number, 16), int(full.timestamp, 16)
    if receipt.transactionHash.lower() != sent.hash.lower() or receipt.blockHash.lower() != full.hash.lower():
        raise BadAnswer(source, f"receipt {index} of block {height} belongs to another transaction")
    if {int(place, 16) for place in (sent.transactionIndex, receipt.transactionIndex) if place} != {index}:
        raise BadAnswer(source, f"transaction {index} of block {height} is said to lie at another place")
    return finished(height, time_s, index, sent, receipt)


def check_listed(source: str, found: Sequence[Done], header: Header) -> None:
    """BadAnswer where a header without bodies lists other transactions than its block has."""
    listed = [typed(source, bytes(each), Hash).lower() for each in header.transactions]
    if [each.sent.hash.lower() for each in found] != listed:
        raise BadAnswer(source, f"block {header.height} has other transactions than its header lists")


def finished(height: int, time_s: int, index: int, sent: Transaction, receipt: Receipt) -> Done:
    """A transaction and its receipt in numbers; the fee has its L1, operator and blob parts in it."""

    def number(text: str | None) -> int:
        return int(text, 16) if text else 0

    gas_used = number(receipt.gasUsed)
    gas_price = number(receipt.effectiveGasPrice or sent.gasPrice)
    blobs = number(receipt.blobGasUsed) * number(receipt.blobGasPrice)
    scalar, constant = number(receipt.operatorFeeScalar), number(receipt.operatorFeeConstant)
    # The OP stack's operator fee: millionths of the gas since Isthmus, hundreds of it since Jovian, whose receipts have
    # the other scalar.
    operator = (gas_used * scalar * 100 if receipt.daFootprintGasScalar else gas_used * scalar // 10**6) + constant
    extra = number(receipt.l1Fee) + operator + blobs
    status = None if receipt.status is None else number(receipt.status)
    return Done(height, time_s, index, sent, receipt, gas_used, gas_price, gas_used * gas_price + extra, status)


def _text(values: Sequence[str | None]) -> pa.Array:
    return pa.array([value.lower() if value else None for value in values], pa.string())


def rows(all_done: Sequence[Done], chain: str) -> pa.Table:
    """Rows of `transactions`."""
    n = len(all_done)
    return table(TRANSACTIONS, {
        "chain": constant(chain, n),
        "height": pa.array([d.height for d in all_done], pa.int64()),
        "time": times(np.array([d.time_s for d in all_done], np.int64)),
        "tx_index": pa.array([d.index for d in all_done], pa.int32()),
        "hash": _text([d.sent.hash for d in all_done]),
        "sender": _text([d.sent.sender for d in all_done]),
        "recipient": _text([d.sent.to for d in all_done]),
        "created": _text([None if d.sent.to else d.receipt.contractAddress for d in all_done]),
        "raw": of_ints([int(d.sent.value, 16) for d in all_done])[0],
        "nonce": pa.array([int(d.sent.nonce, 16) for d in all_done], pa.int64()),
        "type": pa.array([int(d.sent.type, 16) for d in all_done], pa.int32()),
        "status": pa.array([d.status for d in all_done], pa.int32()),
        "gas_used": pa.array([d.gas_used for d in all_done], pa.int64()),
        "gas_price": of_ints([d.gas_price for d in all_done])[0],
        "fee": of_ints([d.fee for d in all_done])[0],
        "input": pa.array([bytes.fromhex(d.sent.input[2:]) for d in all_done], pa.binary()),
    })  # fmt: skip


def native(all_done: Sequence[Done], chain: str) -> pa.Table:
    """Rows of `transfers` for the native coins that transactions moved; a failed transaction moved none."""
    moved = [
        Coins(
            d.height, d.time_s, d.index, 0, d.sent.hash.lower(), d.sent.sender.lower(), d.recipient,
            int(d.sent.value, 16),
        )
        for d in all_done
        if d.status != 0 and d.recipient
    ]  # fmt: skip
    return coin_rows([coins for coins in moved if coins.raw], chain, "native")


def mints(all_done: Sequence[Done], chain: str) -> pa.Table:
    """Rows of `transfers` for the native coins that came from another chain with transactions, before anything else
    that they did; a failed one keeps them."""
    moved = [
        Coins(d.height, d.time_s, d.index, MINTED, d.sent.hash.lower(), NOBODY, d.sent.sender.lower(), d.minted)
        for d in all_done
        if d.minted
    ]
    return coin_rows(moved, chain, "mint")
