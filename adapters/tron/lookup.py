"""Single transactions by their hashes, compared with their place in the index."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from adapters.tron.forms import Info, Transaction
from adapters.tron.node import Node, TronNode, is_empty
from adapters.tron.rows import asked_by, has_failed
from chainfolio.chains import KnownTransaction
from chainfolio.contracts import TransactionDetails
from chainfolio.errors import BadAnswer, NodeBehind, Reorged
from transport.wire import typed

SELECTOR = 4


async def look_up(node: Node, known: Sequence[KnownTransaction]) -> list[TransactionDetails]:
    """What nodes say of transactions that the index knows, in order."""

    async def read(endpoint: TronNode) -> list[TransactionDetails]:
        return list(await asyncio.gather(*(_one(endpoint, each) for each in known)))

    return await node.with_any(read, kind="lookup") if known else []


async def _one(endpoint: TronNode, known: KnownTransaction) -> TransactionDetails:
    asked = {"value": known.tx_hash}
    done, info = await asyncio.gather(
        endpoint.read("/wallet/gettransactionbyid", asked, _transaction),
        endpoint.read("/wallet/gettransactioninfobyid", asked, _info),
    )
    if done is None or info is None:
        if known.final:
            raise NodeBehind(endpoint.name, f"does not have transaction {known.tx_hash}")
        raise Reorged(endpoint.name, known.height, known.block_hash or "")
    if (info.blockNumber, info.id, done.txID) != (known.height, known.tx_hash, known.tx_hash):
        raise BadAnswer(endpoint.name, f"has transaction {known.tx_hash} elsewhere than the index")
    _, told = asked_by(endpoint.name, done, info, is_first=known.height == 0)
    failed = has_failed(endpoint.name, done, info)
    selector = told.input[:SELECTOR] if told.input else None
    created = None if failed else told.created
    return TransactionDetails(told.owner, told.recipient, created, told.raw, info.fee, failed, selector)


def _transaction(source: str, content: bytes) -> Transaction | None:
    return None if is_empty(content) else typed(source, content, Transaction)


def _info(source: str, content: bytes) -> Info | None:
    return None if is_empty(content) else typed(source, content, Info)
