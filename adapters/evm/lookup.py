"""Look up single transactions by hash, with their receipts, and compare their position with the index."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chainfolio.adapters.evm.datasets.transactions import (
    ExecutedTransaction,
    Receipt,
    Transaction,
    comparison_key,
    executed_transaction,
)
from chainfolio.adapters.evm.forms import Address, Data, Hash, Height
from chainfolio.adapters.evm.node import Node, results_of
from chainfolio.chain_results import IndexedTransaction
from chainfolio.contracts import TransactionDetails
from chainfolio.errors import BadAnswer, NodeBehind, Reorged, SourceError
from chainfolio.position_changes import EventLog
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed


class MinedTransaction(Transaction):
    """A transaction with its position in a block; a pending one has none."""

    blockHash: Hash | None = None
    blockNumber: Height | None = None


class MinedReceipt(Receipt, kw_only=True):
    """A receipt with its height."""

    blockNumber: Height


class Log(msgspec.Struct, gc=False):
    """One log of a receipt."""

    address: Address
    topics: list[Hash]
    data: Data


class LoggedReceipt(msgspec.Struct, gc=False):
    """A receipt with its logs, and the fields that identify its transaction."""

    transactionHash: Hash
    blockNumber: Height
    logs: list[Log]


async def read_logs(node: Node, transactions: Sequence[tuple[str, int]]) -> list[tuple[EventLog, ...]]:
    """Return the logs of transactions (hash and height), in order, read in one batch.

    Raises:
        BadAnswer: The node gives another transaction.
        NodeBehind: The node lacks one.
        Reorged: The node has one in another block.
    """

    async def at(endpoint: Endpoint) -> list[tuple[EventLog, ...]]:
        reads = [Request("eth_getTransactionReceipt", (tx_hash,)) for tx_hash, _ in transactions]
        answers = await results_of(endpoint, reads)
        return [_logs(endpoint.name, *each, answer) for each, answer in zip(transactions, answers, strict=True)]

    return await node.agreed(
        at,
        key=lambda logs: logs,
        describe=lambda question: f"the logs of transaction {transactions[question][0]}",
        is_final=lambda question: False,
        kind="transactions",
    )


def _logs(source: str, tx_hash: str, height: int, receipt_json: bytes) -> tuple[EventLog, ...]:
    """Return the logs of a transaction's receipt.

    Raises NodeBehind if there is no receipt, BadAnswer if it is another transaction's, Reorged at another height.
    """
    if receipt_json == b"null":
        raise NodeBehind(source, f"does not have transaction {tx_hash} of block {height}")
    receipt = typed(source, receipt_json, LoggedReceipt)
    if receipt.transactionHash.lower() != tx_hash:
        raise BadAnswer(source, f"another transaction in answer to {tx_hash}")
    if int(receipt.blockNumber, 16) != height:
        raise Reorged(source, height, "")
    return tuple(
        EventLog(log.address.lower(), tuple(topic.lower() for topic in log.topics), bytes.fromhex(log.data[2:]))
        for log in receipt.logs
    )


async def look_up(node: Node, transactions: Sequence[IndexedTransaction]) -> list[ExecutedTransaction]:
    """Return transactions that the index knows, in order, read in one batch.

    Raises:
        BadAnswer: The node has a final one in another position than the index, or gives another transaction.
        Reorged: The node has a transaction in another position that is not final.
        NodeBehind: The node lacks one.
    """
    methods = ("eth_getTransactionByHash", "eth_getTransactionReceipt")
    reads = [Request(method, (transaction.tx_hash,)) for transaction in transactions for method in methods]

    async def at(endpoint: Endpoint) -> list[ExecutedTransaction]:
        answers = iter(await results_of(endpoint, reads))
        return [_executed(endpoint.name, transaction, next(answers), next(answers)) for transaction in transactions]

    return await node.agreed(
        at,
        key=comparison_key,
        describe=lambda question: f"transaction {transactions[question].tx_hash}",
        is_final=lambda question: transactions[question].final,
        kind="transactions",
    )


def _executed(
    source: str, indexed: IndexedTransaction, transaction_json: bytes, receipt_json: bytes
) -> ExecutedTransaction:
    """Return an indexed transaction with its receipt.

    Raises:
        NodeBehind: The node lacks it.
        BadAnswer: It is another transaction, a final one that stands elsewhere than in the index, or has no gas price.
        Reorged: One that is not final stands elsewhere.
    """
    if b"null" in (transaction_json, receipt_json):
        raise NodeBehind(source, f"does not have transaction {indexed.tx_hash} of block {indexed.height}")
    transaction, receipt = typed(source, transaction_json, MinedTransaction), typed(source, receipt_json, MinedReceipt)
    if {transaction.hash.lower(), receipt.transactionHash.lower()} != {indexed.tx_hash}:
        raise BadAnswer(source, f"another transaction in answer to {indexed.tx_hash}")
    if error := _position_error(source, indexed, transaction, receipt):
        raise error
    return executed_transaction(source, indexed.height, indexed.time_s, indexed.tx_index, transaction, receipt)


def _position_error(
    source: str, indexed: IndexedTransaction, transaction: MinedTransaction, receipt: MinedReceipt
) -> SourceError | None:
    """Return an error if transaction, receipt and index do not name the same position, else None.

    The error is Reorged for a pending transaction or one that is not final in the index, else BadAnswer.
    """
    if transaction.blockHash is None or transaction.blockNumber is None or transaction.transactionIndex is None:
        return Reorged(source, indexed.height, indexed.block_hash or "")
    hashes = {
        transaction.blockHash.lower(),
        receipt.blockHash.lower(),
        *([indexed.block_hash] if indexed.block_hash else []),
    }
    heights = {int(text, 16) for text in (transaction.blockNumber, receipt.blockNumber)} | {indexed.height}
    positions = {int(text, 16) for text in (transaction.transactionIndex, receipt.transactionIndex)}
    if len(hashes) == len(heights) == 1 and positions == {indexed.tx_index}:
        return None
    if not indexed.final:
        return Reorged(source, indexed.height, indexed.block_hash or "")
    return BadAnswer(
        source, f"transaction {indexed.tx_hash} lies elsewhere than in block {indexed.height} of the index"
    )


def details(executed: ExecutedTransaction) -> TransactionDetails:
    """Return the details of a transaction and its receipt, addresses in lower case.

    The selector is the first four bytes of its input, which may be shorter.
    """
    transaction, created = executed.transaction, None if executed.transaction.to else executed.receipt.contractAddress
    return TransactionDetails(
        transaction.sender.lower(),
        transaction.to.lower() if transaction.to else None,
        created.lower() if created else None,
        int(transaction.value, 16),
        executed.fee,
        executed.status == 0,
        bytes.fromhex(transaction.input[2:10]),
    )
