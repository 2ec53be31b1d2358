"""Read the receipts of whole blocks by the method that an endpoint supports, which is remembered."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chainfolio.adapters.evm.forms import Hash
from chainfolio.adapters.evm.node import Header, hex_of, results_of
from chainfolio.errors import BadAnswer, NodeBehind, UnsupportedMethod
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

ROUTE = "receipts"
BY_BLOCK, ONE_BY_ONE = 0, 1


class _ReceiptKey(msgspec.Struct):
    """The field of a receipt that says to which transaction it belongs."""

    transactionHash: Hash


async def block_receipts(endpoint: Endpoint, headers: Sequence[Header]) -> list[bytes]:
    """Return the JSON list of receipts of each block, in the order of its transactions.

    If a list by block does not match the block's header, the block's receipts are read one by one. A node that gives
    no lists by block is remembered.

    Raises:
        NodeBehind: The node lacks a block or one of the transactions.
        UnsupportedMethod: It gives no receipts at all.
    """
    if endpoint.capabilities.get(ROUTE, BY_BLOCK) == BY_BLOCK:
        try:
            return await _by_block(endpoint, headers)
        except UnsupportedMethod as refusal:
            endpoint.errors.note(refusal)
    lists = await _one_by_one(endpoint, headers)
    endpoint.learn(ROUTE, ONE_BY_ONE)
    return lists


async def _by_block(endpoint: Endpoint, headers: Sequence[Header]) -> list[bytes]:
    """Read receipts by block; blocks whose receipts do not match the header are read one by one.

    Raises:
        UnsupportedMethod: The node gives no receipts by block.
        NodeBehind: It lacks a block or transaction.
    """
    requests = [Request("eth_getBlockReceipts", (hex_of(header.height),)) for header in headers]
    lists = await results_of(endpoint, requests)
    mismatched = [
        index
        for index, (header, receipts) in enumerate(zip(headers, lists, strict=True))
        if not _matches_header(endpoint.name, header, receipts)
    ]
    if mismatched:
        heights = ", ".join(str(headers[index].height) for index in mismatched[:3])
        reason = f"eth_getBlockReceipts of block {heights} gives others than the block's transactions"
        endpoint.errors.note(BadAnswer(endpoint.name, reason))
        replacements = await _one_by_one(endpoint, [headers[index] for index in mismatched])
        for index, receipts in zip(mismatched, replacements, strict=True):
            lists[index] = receipts
    return lists


def _matches_header(source: str, header: Header, receipts: bytes) -> bool:
    keys = typed(source, receipts, list[_ReceiptKey] | None)  # type: ignore[arg-type]
    return keys is not None and [key.transactionHash.lower() for key in keys] == _hashes(source, header)


def _hashes(source: str, header: Header) -> list[str]:
    return [typed(source, bytes(text), Hash).lower() for text in header.transactions]


async def _one_by_one(endpoint: Endpoint, headers: Sequence[Header]) -> list[bytes]:
    """Return receipts by block, read by transaction; raise NodeBehind if one is missing."""
    hashes = [_hashes(endpoint.name, header) for header in headers]
    reads = [Request("eth_getTransactionReceipt", (tx_hash,)) for block in hashes for tx_hash in block]
    answers = iter(await results_of(endpoint, reads))
    lists = []
    for header, block in zip(headers, hashes, strict=True):
        receipts = [next(answers) for _ in block]
        if b"null" in receipts:
            missing = block[receipts.index(b"null")]
            raise NodeBehind(endpoint.name, f"does not have transaction {missing} of block {header.height}")
        lists.append(b"[" + b",".join(receipts) + b"]")
    return lists
