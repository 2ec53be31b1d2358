"""The receipts of whole blocks, by whichever way an endpoint knows: learnt once, and remembered."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.evm.endpoint import Endpoint
from adapters.evm.node import Header, raw_blocks, results_of
from adapters.evm.wire import Request, typed
from chainfolio.errors import NodeBehind, Unsupported

ROUTE = "receipts"
BY_BLOCK, ONE_BY_ONE = 0, 1


async def block_receipts(endpoint: Endpoint, headers: Sequence[Header]) -> list[bytes]:
    """For each block the JSON list of its receipts, in the order of its transactions, as the node gave them.

    NodeBehind where it lacks a block or one of the transactions, Unsupported where it gives no receipts at all.
    """
    if endpoint.learnt.get(ROUTE, BY_BLOCK) == BY_BLOCK:
        try:
            return await raw_blocks(endpoint, [header.height for header in headers], "eth_getBlockReceipts")
        except Unsupported as refusal:
            endpoint.trouble.note(refusal)
    found = await _one_by_one(endpoint, headers)
    endpoint.learn(ROUTE, ONE_BY_ONE)
    return found


async def _one_by_one(endpoint: Endpoint, headers: Sequence[Header]) -> list[bytes]:
    hashes = [[typed(endpoint.name, bytes(each), str) for each in header.transactions] for header in headers]
    asks = [Request("eth_getTransactionReceipt", (tx_hash,)) for block in hashes for tx_hash in block]
    answers = iter(await results_of(endpoint, asks))
    found = []
    for header, block in zip(headers, hashes, strict=True):
        receipts = [next(answers) for _ in block]
        if b"null" in receipts:
            missing = block[receipts.index(b"null")]
            raise NodeBehind(endpoint.name, f"does not have transaction {missing} of block {header.height}")
        found.append(b"[" + b",".join(receipts) + b"]")
    return found
