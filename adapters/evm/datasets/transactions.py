"""Transactions with what their receipts say, and the native coins they moved, from full blocks and block receipts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from adapters.evm.columns import constant, of_ints, table, times
from adapters.evm.datasets.common import Coins, coin_rows
from adapters.evm.wire import data, quantity, typed
from chainfolio.errors import BadAnswer
from chainfolio.tables import TRANSACTIONS


class Transaction(msgspec.Struct, gc=False):
    """One transaction of a full block."""

    hash: str
    sender: str = msgspec.field(name="from")
    value: str
    nonce: str
    input: str
    to: str | None = None
    type: str = "0x0"
    gasPrice: str | None = None
    transactionIndex: str | None = None


class FullBlock(msgspec.Struct):
    """A block with its transactions."""

    number: str
    hash: str
    timestamp: str
    transactions: list[Transaction]


class Receipt(msgspec.Struct, gc=False):
    """What became of a transaction. L1 and blob fields are the extra costs of rollups and blobs."""

    transactionHash: str
    transactionIndex: str
    blockHash: str
    gasUsed: str
    status: str | None = None
    effectiveGasPrice: str | None = None
    contractAddress: str | None = None
    l1Fee: str | None = None
    operatorFeeScalar: str | None = None
    operatorFeeConstant: str | None = None
    daFootprintGasScalar: str | None = None
    blobGasUsed: str | None = None
    blobGasPrice: str | None = None


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


def done_key(done: Done) -> Hashable:
    """What two equal ones share: everything that is stored of them."""
    sent, receipt = done.sent, done.receipt
    who = tuple(text and text.lower() for text in (sent.hash, sent.sender, sent.to, receipt.contractAddress))
    numbers = (done.height, done.time_s, done.index, done.gas_used, done.gas_price, done.fee, done.status)
    return (*who, *numbers, sent.value, sent.nonce, sent.input.lower(), int(sent.type, 16))


def done(source: str, block: bytes, receipts: bytes, block_hash: str) -> list[Done]:
    """The transactions of one block with their receipts; BadAnswer where the two do not belong together."""
    full, given = typed(source, block, FullBlock), typed(source, receipts, list[Receipt])
    if full.hash.lower() != block_hash:
        raise BadAnswer(source, f"block {full.number} is {full.hash} in one answer and {block_hash} in another")
    if len(given) != len(full.transactions):
        raise BadAnswer(
            source, f"block {full.number} has {len(full.transactions)} transactions and {len(given)} receipts"
        )
    height, time_s = quantity(source, full.number, bits=62), quantity(source, full.timestamp, bits=40)
    result = []
    for index, (sent, receipt) in enumerate(zip(full.transactions, given, strict=True)):
        if receipt.transactionHash.lower() != sent.hash.lower() or receipt.blockHash.lower() != block_hash:
            raise BadAnswer(source, f"receipt {index} of block {full.number} belongs to another transaction")
        result.append(finished(source, height, time_s, index, sent, receipt))
    return result


def finished(source: str, height: int, time_s: int, index: int, sent: Transaction, receipt: Receipt) -> Done:
    """A transaction and its receipt in numbers; the fee has its L1, operator and blob parts in it."""

    def number(text: str | None, bits: int = 120) -> int:  # room enough, and no fee can outgrow 256 bits
        return quantity(source, text, bits=bits) if text else 0

    gas_used = number(receipt.gasUsed, 63)
    gas_price = number(receipt.effectiveGasPrice or sent.gasPrice)
    blobs = number(receipt.blobGasUsed, 63) * number(receipt.blobGasPrice)
    scalar, constant = number(receipt.operatorFeeScalar, 64), number(receipt.operatorFeeConstant, 64)
    # The OP stack's operator fee: millionths of the gas since Isthmus, hundreds of it since Jovian, whose receipts have
    # the other scalar.
    operator = (gas_used * scalar * 100 if receipt.daFootprintGasScalar else gas_used * scalar // 10**6) + constant
    extra = number(receipt.l1Fee) + operator + blobs
    status = None if receipt.status is None else number(receipt.status, 31)
    return Done(height, time_s, index, sent, receipt, gas_used, gas_price, gas_used * gas_price + extra, status)


def _text(values: Sequence[str | None]) -> pa.Array:
    return pa.array([value.lower() if value else None for value in values], pa.string())


def rows(all_done: Sequence[Done], chain: str, source: str) -> pa.Table:
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
        "raw": of_ints([quantity(source, d.sent.value) for d in all_done])[0],
        "nonce": pa.array([quantity(source, d.sent.nonce, bits=63) for d in all_done], pa.int64()),
        "type": pa.array([quantity(source, d.sent.type, bits=31) for d in all_done], pa.int32()),
        "status": pa.array([d.status for d in all_done], pa.int32()),
        "gas_used": pa.array([d.gas_used for d in all_done], pa.int64()),
        "gas_price": of_ints([d.gas_price for d in all_done])[0],
        "fee": of_ints([d.fee for d in all_done])[0],
        "input": pa.array([data(source, d.sent.input) for d in all_done], pa.binary()),
    })  # fmt: skip


def native(all_done: Sequence[Done], chain: str, source: str) -> pa.Table:
    """Rows of `transfers` for the native coins that transactions moved; a failed transaction moved none."""
    moved = [
        Coins(d.height, d.time_s, d.index, 0, d.sent.hash, d.sent.sender, d.recipient, quantity(source, d.sent.value))
        for d in all_done
        if d.status != 0 and d.recipient
    ]
    return coin_rows([coins for coins in moved if coins.raw], chain, "native")
