"""The receipts of whole blocks, by whichever way an endpoint knows: learnt once, and remembered."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adapters.evm.forms import Hash
from adapters.evm.node import Header, hex_of, results_of
from chainfolio.errors import BadAnswer, NodeBehind, Unsupported
from transport.endpoint import Endpoint
from transport.wire import Request, typed

ROUTE = "receipts"
BY_BLOCK, ONE_BY_ONE = 0, 1


class _Of(msgspec.Struct):
    """Of which transaction a receipt is."""

    transactionHash: Hash


async def block_receipts(endpoint: Endpoint, headers: Sequence[Header]) -> list[bytes]:
    """For each block the JSON list of its receipts, in the order of its transactions, as the node gave them. A block of
    which the list by block is not that of its header is asked for receipt by receipt.

    NodeBehind where it lacks a block or one of the transactions, Unsupported where it gives no receipts at all.
    """
    if endpoint.capabilities.get(ROUTE, BY_BLOCK) == BY_BLOCK:
        try:
            return await _by_block(endpoint, headers)
        except Unsupported as refusal:
            endpoint.errors.note(refusal)
    found = await _one_by_one(endpoint, headers)
    endpoint.learn(ROUTE, ONE_BY_ONE)
    return found


async def _by_block(endpoint: Endpoint, headers: Sequence[Header]) -> list[bytes]:
    given = await results_of(endpoint, [Request("eth_getBlockReceipts", (hex_of(each.height),)) for each in headers])
    short = [at for at, header in enumerate(headers) if not _is_whole(endpoint.name, header, given[at])]
    if short:
        some = ", ".join(str(headers[at].height) for at in short[:3])
        reason = f"eth_getBlockReceipts of block {some} gives others than the block's transactions"
        endpoint.errors.note(BadAnswer(endpoint.name, reason))
        for at, whole in zip(short, await _one_by_one(endpoint, [headers[at] for at in short]), strict=True):
            given[at] = whole
    return given


def _is_whole(source: str, header: Header, receipts: bytes) -> bool:
    found = typed(source, receipts, list[_Of] | None)  # type: ignore[arg-type]
    return found is not None and [each.transactionHash.lower() for each in found] == _hashes(source, header)


def _hashes(source: str, header: Header) -> list[str]:
    return [typed(source, bytes(each), Hash).lower() for each in header.transactions]


async def _one_by_one(endpoint: Endpoint, headers: Sequence[Header]) -> list[bytes]:
    hashes = [_hashes(endpoint.name, header) for header in headers]
    reads = [Request("eth_getTransactionReceipt", (tx_hash,)) for block in hashes for tx_hash in block]
    answers = iter(await results_of(endpoint, reads))
    found = []
    for header, block in zip(headers, hashes, strict=True):
        receipts = [next(answers) for _ in block]
        if b"null" in receipts:
            missing = block[receipts.index(b"null")]
            raise NodeBehind(endpoint.name, f"does not have transaction {missing} of block {header.height}")
        found.append(b"[" + b",".join(receipts) + b"]")
    return found
