"""Single transactions by their hashes, with what their receipts say, held against where the index has them."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.evm.datasets.transactions import Done, Receipt, Transaction, done_key, finished
from adapters.evm.forms import Hash, Height
from adapters.evm.node import Node, results_of
from chainfolio.chains import KnownTransaction
from chainfolio.errors import BadAnswer, NodeBehind, Reorged, SourceError
from transport.endpoint import Endpoint
from transport.wire import Request, typed


class Mined(Transaction):
    """A transaction with its place; a pending one has none."""

    blockHash: Hash | None = None
    blockNumber: Height | None = None


class MinedReceipt(Receipt, kw_only=True):
    """A receipt with its place."""

    blockNumber: Height


async def look_up(node: Node, known: Sequence[KnownTransaction]) -> list[Done]:
    """Transactions that the index knows, in order, in one batch. BadAnswer where the node has one elsewhere than the
    index, Reorged where its block may still go, NodeBehind where the node does not have it."""
    methods = ("eth_getTransactionByHash", "eth_getTransactionReceipt")
    reads = [Request(method, (each.tx_hash,)) for each in known for method in methods]

    async def at(endpoint: Endpoint) -> list[Done]:
        answers = iter(await results_of(endpoint, reads))
        return [_done(endpoint.name, each, next(answers), next(answers)) for each in known]

    return await node.agreed(
        at,
        key=done_key,
        asked=lambda question: f"transaction {known[question].tx_hash}",
        final=lambda question: known[question].final,
        kind="transactions",
    )


def _done(source: str, known: KnownTransaction, transaction: bytes, receipt: bytes) -> Done:
    if b"null" in (transaction, receipt):
        raise NodeBehind(source, f"does not have transaction {known.tx_hash} of block {known.height}")
    sent, given = typed(source, transaction, Mined), typed(source, receipt, MinedReceipt)
    if {sent.hash.lower(), given.transactionHash.lower()} != {known.tx_hash}:
        raise BadAnswer(source, f"another transaction in answer to {known.tx_hash}")
    if error := _elsewhere(source, known, sent, given):
        raise error
    return finished(known.height, known.time_s, known.tx_index, sent, given)


def _elsewhere(source: str, known: KnownTransaction, sent: Mined, given: MinedReceipt) -> SourceError | None:
    """What is wrong where transaction, receipt and index do not name the same place."""
    if sent.blockHash is None or sent.blockNumber is None or sent.transactionIndex is None:
        return Reorged(source, known.height, known.block_hash or "")
    hashes = {sent.blockHash.lower(), given.blockHash.lower(), *([known.block_hash] if known.block_hash else [])}
    heights = {int(text, 16) for text in (sent.blockNumber, given.blockNumber)} | {known.height}
    places = {int(text, 16) for text in (sent.transactionIndex, given.transactionIndex)}
    if len(hashes) == len(heights) == 1 and places == {known.tx_index}:
        return None
    if not known.final:
        return Reorged(source, known.height, known.block_hash or "")
    return BadAnswer(source, f"transaction {known.tx_hash} lies elsewhere than in block {known.height} of the index")
