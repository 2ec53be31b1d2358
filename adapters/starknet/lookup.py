"""Details of single transactions by their hashes, checked against their position in the index."""

from __future__ import annotations

from collections.abc import Sequence

from chainfolio.adapters.starknet.felts import FormattedFelts
from chainfolio.adapters.starknet.forms import ReceiptWithBlock, Transaction
from chainfolio.adapters.starknet.node import Node, unwrap
from chainfolio.adapters.starknet.transactions import parties, sender_fee
from chainfolio.chain_results import IndexedTransaction
from chainfolio.contracts import TransactionDetails
from chainfolio.errors import BadAnswer, NodeBehind, Reorged
from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.wire import Request, typed


async def look_up(node: Node, transactions: Sequence[IndexedTransaction]) -> list[TransactionDetails]:
    """Return the details of indexed transactions, in order.

    Raises:
        SourceError: A transaction could not be read: Reorged if it left the chain, NodeBehind if it is final and the
            node lacks it.
    """

    async def read(endpoint: Endpoint) -> list[TransactionDetails]:
        hashes = [hex(int(each.tx_hash, 16)) for each in transactions]
        requests = [
            Request(method, (each,))
            for each in hashes
            for method in ("starknet_getTransactionByHash", "starknet_getTransactionReceipt")
        ]
        answers = await endpoint.ask(requests, height=max(each.height for each in transactions))
        unit, pairs = node.facts.fee_unit, zip(transactions, answers[::2], answers[1::2], strict=True)
        return [_details(endpoint.name, unit, indexed, answer, receipt) for indexed, answer, receipt in pairs]

    return await node.with_any(read, kind="lookup") if transactions else []


def _details(
    source: str, native_unit: str, indexed: IndexedTransaction, transaction_answer: Answer, receipt_answer: Answer
) -> TransactionDetails:
    """Return the details of a transaction; its fee is 0 if paid in another token than the native coin.

    Raises:
        BadAnswer: It stands elsewhere than in the index, or is malformed.
        SourceError: An answer is an error, as `look_up` says.
    """
    transaction_json, receipt_json = (_check(source, indexed, each) for each in (transaction_answer, receipt_answer))
    felts, receipt = FormattedFelts(source), typed(source, receipt_json, ReceiptWithBlock)
    if (receipt.block_number, felts[receipt.transaction_hash]) != (indexed.height, indexed.tx_hash):
        raise BadAnswer(source, f"has transaction {indexed.tx_hash} elsewhere than the index")
    transaction = typed(source, transaction_json, Transaction)
    sender, recipient, created, function = parties(felts, transaction, receipt)
    fee, unit = sender_fee(felts.numbers, transaction, receipt)
    native_fee = fee if unit == native_unit else 0
    return TransactionDetails(sender, recipient, created, 0, native_fee, receipt.failed, function)


def _check(source: str, indexed: IndexedTransaction, answer: Answer) -> bytes:
    """Return the JSON in an answer; Reorged or NodeBehind if the node does not have the transaction."""
    if isinstance(answer, BadAnswer) and not indexed.final:
        raise Reorged(source, indexed.height, indexed.block_hash or "")
    if isinstance(answer, BadAnswer):
        raise NodeBehind(source, f"does not have transaction {indexed.tx_hash}")
    return unwrap(answer)
