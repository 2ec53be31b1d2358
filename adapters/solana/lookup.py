"""Single transactions by their signatures, checked against their position in the index."""

from __future__ import annotations

from collections.abc import Sequence

from chainfolio.adapters.solana.functions import SELECTOR_SIZE
from chainfolio.adapters.solana.node import Node, ask_each
from chainfolio.adapters.solana.transactions import FetchedTransaction, change
from chainfolio.chain_results import IndexedTransaction
from chainfolio.contracts import TransactionDetails
from chainfolio.errors import BadAnswer, NodeBehind, Reorged, SourceError
from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.wire import Request, typed


async def look_up(node: Node, transactions: Sequence[IndexedTransaction]) -> list[TransactionDetails]:
    """Read the details of transactions that the index has, in order.

    Raises:
        NodeBehind: The node lacks a final one.
        Reorged: The node lacks another one.
        BadAnswer: One stands elsewhere than in the index.
    """
    options = {"encoding": "json", "maxSupportedTransactionVersion": 0, "commitment": node.commitment}

    async def read(endpoint: Endpoint) -> list[TransactionDetails]:
        requests = [Request("getTransaction", (each.tx_hash, options)) for each in transactions]
        answers = await ask_each(endpoint, requests, height=max(each.height for each in transactions))
        return [_details(endpoint.name, each, answer) for each, answer in zip(transactions, answers, strict=True)]

    return await node.with_any(read, kind="lookup") if transactions else []


def _details(source: str, indexed: IndexedTransaction, answer: Answer) -> TransactionDetails:
    """Return the details of an indexed transaction.

    If the node lacks it, raises NodeBehind for a final one, else Reorged; BadAnswer if it stands elsewhere.
    """
    if isinstance(answer, SourceError):
        raise answer
    entry = typed(source, answer, FetchedTransaction | None)  # type: ignore[arg-type]
    if entry is None:
        if indexed.final:
            raise NodeBehind(source, f"does not have transaction {indexed.tx_hash}")
        raise Reorged(source, indexed.height, indexed.block_hash or "")
    tx_change = change(source, entry, entry.slot)
    if (entry.slot, tx_change.signature) != (indexed.height, indexed.tx_hash):
        raise BadAnswer(source, f"has transaction {indexed.tx_hash} elsewhere than the index")
    selector = tx_change.content[:SELECTOR_SIZE] if tx_change.content else None
    return TransactionDetails(tx_change.payer, tx_change.program, None, 0, tx_change.fee, tx_change.failed, selector)
