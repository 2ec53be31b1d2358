"""Transactions with their receipts, and the native coins they moved, from full blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from chainfolio.adapters.evm.columns import constant, of_ints, table, times
from chainfolio.adapters.evm.datasets.common import ZERO_ADDRESS, CoinRow, coin_rows
from chainfolio.adapters.evm.forms import (
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
from chainfolio.adapters.evm.node import Header
from chainfolio.adapters.evm.roots import Withdrawal
from chainfolio.errors import BadAnswer
from chainfolio.tables import TRANSACTIONS
from chainfolio.transport.wire import typed

MINT_ITEM = -1  # before the transaction's own value
# Transactions of the protocol itself, whose gas is free: deposits and internal ones of Arbitrum, deposits of the OP
# stack, state syncs of Polygon. Some nodes leave out their prices.
FREE_TYPES = frozenset((0x64, 0x6A, 0x7E, 0x7F))


class Transaction(msgspec.Struct, gc=False):
    """One transaction of a full block.

    `mint` is the raw amount that a deposit from another chain gave to the sender, also if the transaction failed.
    """

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
        """Height of the block."""
        return int(self.number, 16)

    @property
    def time_s(self) -> int:
        """Time of the block in Unix seconds."""
        return int(self.timestamp, 16)


class Receipt(msgspec.Struct, gc=False):
    """A transaction's receipt. L1 and blob fields are the extra costs of rollups and blobs."""

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
class ExecutedTransaction:
    """A transaction with its receipt and its place in the chain.

    `fee` includes L1, operator and blob fees. `status` is 1 for success, 0 for failure, and None before Byzantium.
    """

    height: int
    time_s: int
    index: int
    transaction: Transaction
    receipt: Receipt
    gas_used: int
    gas_price: int
    fee: int
    status: int | None

    @property
    def recipient(self) -> str | None:
        """The callee or the created contract, in lower case; None if the receipt names no contract."""
        to = self.transaction.to or self.receipt.contractAddress
        return to.lower() if to else None

    @property
    def minted(self) -> int:
        """Raw coins that a deposit from another chain gave to the sender."""
        return int(self.transaction.mint or "0x0", 16)


def comparison_key(executed: ExecutedTransaction) -> Hashable:
    """Return everything that is stored of a transaction: equal for equal transactions."""
    tx, receipt = executed.transaction, executed.receipt
    addresses = tuple(text and text.lower() for text in (tx.hash, tx.sender, tx.to, receipt.contractAddress))
    location = (executed.height, executed.time_s, executed.index)
    numbers = (executed.gas_used, executed.gas_price, executed.fee, executed.status, executed.minted)
    return (*addresses, *location, *numbers, tx.value, tx.nonce, tx.input.lower(), int(tx.type, 16))


def match_receipts(source: str, block: bytes, receipts: bytes, header: Header) -> list[ExecutedTransaction]:
    """Return the transactions of one block with their receipts.

    Args:
        source: The endpoint that gave both answers.
        block: The full block as JSON.
        receipts: All receipts of the block as JSON.
        header: The header that the block must have.

    Raises:
        BadAnswer: Header, block and receipts do not belong together.
    """
    full, all_receipts = typed(source, block, FullBlock), typed(source, receipts, list[Receipt])
    height, time_s = header.height, header.time_s
    if full.hash.lower() != header.hash:
        raise BadAnswer(source, f"block {height} is {full.hash} in one answer and {header.hash} in another")
    if (int(full.number, 16), int(full.timestamp, 16)) != (height, time_s):
        raise BadAnswer(source, f"block {height} has another height or time than its header")
    if len({tx.hash.lower() for tx in full.transactions}) < len(full.transactions):
        raise BadAnswer(source, f"block {height} has a transaction twice")
    if len(all_receipts) != len(full.transactions):
        raise BadAnswer(
            source, f"block {height} has {len(full.transactions)} transactions and {len(all_receipts)} receipts"
        )
    pairs = enumerate(zip(full.transactions, all_receipts, strict=True))
    return [match_receipt(source, full, index, tx, receipt) for index, (tx, receipt) in pairs]


def match_receipt(source: str, full: FullBlock, index: int, tx: Transaction, receipt: Receipt) -> ExecutedTransaction:
    """Return the transaction at `index` of a block with its receipt.

    Raises:
        BadAnswer: The receipt is of another transaction, one of them names another index, or neither a gas price.
    """
    if receipt.transactionHash.lower() != tx.hash.lower() or receipt.blockHash.lower() != full.hash.lower():
        raise BadAnswer(source, f"receipt {index} of block {full.height} belongs to another transaction")
    if {int(text, 16) for text in (tx.transactionIndex, receipt.transactionIndex) if text} != {index}:
        raise BadAnswer(source, f"transaction {index} of block {full.height} is said to lie at another place")
    return executed_transaction(source, full.height, full.time_s, index, tx, receipt)


def check_header_hashes(source: str, executed: Sequence[ExecutedTransaction], header: Header) -> None:
    """Compare the transactions of a block with the hashes that its header lists.

    Raises:
        BadAnswer: They differ.
    """
    hashes = [typed(source, bytes(each), Hash).lower() for each in header.transactions]
    if [each.transaction.hash.lower() for each in executed] != hashes:
        raise BadAnswer(source, f"block {header.height} has other transactions than its header lists")


def executed_transaction(
    source: str, height: int, time_s: int, index: int, tx: Transaction, receipt: Receipt
) -> ExecutedTransaction:
    """Combine a transaction and its receipt; the fee includes L1, operator and blob fees.

    An extra fee that the receipt does not name counts as 0. Receipts of old nodes lack the gas price, which is then
    that of the transaction.

    Raises:
        BadAnswer: Neither names the gas price, the transaction used gas, and it is not of FREE_TYPES.
    """

    def number(text: str | None) -> int:
        return int(text, 16) if text else 0

    gas_used = number(receipt.gasUsed)
    price = receipt.effectiveGasPrice or tx.gasPrice
    if price is None and gas_used and int(tx.type, 16) not in FREE_TYPES:
        raise BadAnswer(source, f"neither transaction {tx.hash} nor its receipt names its gas price")
    gas_price = number(price)
    blobs = number(receipt.blobGasUsed) * number(receipt.blobGasPrice)
    scalar, constant = number(receipt.operatorFeeScalar), number(receipt.operatorFeeConstant)
    # The OP stack's operator fee: since Isthmus the scalar counts millionths per gas, since Jovian hundreds per gas.
    # Only receipts since Jovian have the footprint scalar.
    operator = (gas_used * scalar * 100 if receipt.daFootprintGasScalar else gas_used * scalar // 10**6) + constant
    extra = number(receipt.l1Fee) + operator + blobs
    status = None if receipt.status is None else number(receipt.status)
    fee = gas_used * gas_price + extra
    return ExecutedTransaction(height, time_s, index, tx, receipt, gas_used, gas_price, fee, status)


def _text(values: Sequence[str | None]) -> pa.Array:
    return pa.array([value.lower() if value else None for value in values], pa.string())


def rows(executed: Sequence[ExecutedTransaction], chain: str) -> pa.Table:
    """Return rows of `transactions`, in their order; addresses and hashes in lower case."""
    n = len(executed)
    return table(
        TRANSACTIONS,
        {
            "chain": constant(chain, n),
            "height": pa.array([each.height for each in executed], pa.int64()),
            "time": times(np.array([each.time_s for each in executed], np.int64)),
            "tx_index": pa.array([each.index for each in executed], pa.int32()),
            "hash": _text([each.transaction.hash for each in executed]),
            "sender": _text([each.transaction.sender for each in executed]),
            "recipient": _text([each.transaction.to for each in executed]),
            "created": _text([None if each.transaction.to else each.receipt.contractAddress for each in executed]),
            "raw": of_ints([int(each.transaction.value, 16) for each in executed])[0],
            "nonce": pa.array([int(each.transaction.nonce, 16) for each in executed], pa.int64()),
            "type": pa.array([int(each.transaction.type, 16) for each in executed], pa.int32()),
            "status": pa.array([each.status for each in executed], pa.int32()),
            "gas_used": pa.array([each.gas_used for each in executed], pa.int64()),
            "gas_price": of_ints([each.gas_price for each in executed])[0],
            "fee": of_ints([each.fee for each in executed])[0],
            "input": pa.array([bytes.fromhex(each.transaction.input[2:]) for each in executed], pa.binary()),
        },
    )


def native(executed: Sequence[ExecutedTransaction], chain: str) -> pa.Table:
    """Return rows of `transfers` for the values above zero of transactions that did not fail."""
    coins = [
        CoinRow(
            each.height,
            each.time_s,
            each.index,
            0,
            each.transaction.hash.lower(),
            each.transaction.sender.lower(),
            each.recipient,
            int(each.transaction.value, 16),
        )
        for each in executed
        if each.status != 0 and each.recipient
    ]
    return coin_rows([row for row in coins if row.raw], chain, "native")


def mints(executed: Sequence[ExecutedTransaction], chain: str) -> pa.Table:
    """Return rows of `transfers` for deposits from another chain, which a failed transaction keeps."""
    coins = [
        CoinRow(
            each.height,
            each.time_s,
            each.index,
            MINT_ITEM,
            each.transaction.hash.lower(),
            ZERO_ADDRESS,
            each.transaction.sender.lower(),
            each.minted,
        )
        for each in executed
        if each.minted
    ]
    return coin_rows(coins, chain, "mint")
