"""Details of single transactions by their hashes, checked against their place in the index."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from chainfolio.adapters.tron.forms import Transaction, TransactionInfo
from chainfolio.adapters.tron.functions import SELECTOR_SIZE
from chainfolio.adapters.tron.node import Node, TronNode, is_empty
from chainfolio.adapters.tron.rows import decode_operation, has_failed
from chainfolio.chain_results import IndexedTransaction
from chainfolio.contracts import TransactionDetails
from chainfolio.errors import BadAnswer, NodeBehind, Reorged
from chainfolio.transport.wire import typed


async def look_up(node: Node, indexed: Sequence[IndexedTransaction]) -> list[TransactionDetails]:
    """Return the details of indexed transactions, in order, from one endpoint.

    Raises:
        NodeBehind: The node does not have a final transaction.
        Reorged: A transaction left the chain.
        BadAnswer: A transaction is in another block than in the index.
    """

    async def read(endpoint: TronNode) -> list[TransactionDetails]:
        return list(await asyncio.gather(*(_look_up_one(endpoint, each) for each in indexed)))

    return await node.with_any(read, kind="lookup") if indexed else []


async def _look_up_one(endpoint: TronNode, indexed: IndexedTransaction) -> TransactionDetails:
    """Return the details of an indexed transaction.

    If the node lacks it, raises NodeBehind for a final one, else Reorged; BadAnswer if it stands elsewhere.
    """
    body = {"value": indexed.tx_hash}
    transaction, info = await asyncio.gather(
        endpoint.read("/wallet/gettransactionbyid", body, _decode_transaction),
        endpoint.read("/wallet/gettransactioninfobyid", body, _decode_info),
    )
    if transaction is None or info is None:
        if indexed.final:
            raise NodeBehind(endpoint.name, f"does not have transaction {indexed.tx_hash}")
        raise Reorged(endpoint.name, indexed.height, indexed.block_hash or "")
    if (info.blockNumber, info.id, transaction.txID) != (indexed.height, indexed.tx_hash, indexed.tx_hash):
        raise BadAnswer(endpoint.name, f"has transaction {indexed.tx_hash} elsewhere than the index")
    _, operation = decode_operation(endpoint.name, transaction, info, is_first=indexed.height == 0)
    failed = has_failed(endpoint.name, transaction, info)
    return TransactionDetails(
        operation.owner,
        operation.recipient,
        None if failed else operation.created,
        operation.raw,
        info.fee,
        failed,
        operation.input[:SELECTOR_SIZE] if operation.input else None,
    )


def _decode_transaction(source: str, content: bytes) -> Transaction | None:
    return None if is_empty(content) else typed(source, content, Transaction)


def _decode_info(source: str, content: bytes) -> TransactionInfo | None:
    return None if is_empty(content) else typed(source, content, TransactionInfo)
