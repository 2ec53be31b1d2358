"""Read single transactions of known hashes by their index, without reading full blocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from chainfolio.adapters.evm.accounts.header_cache import HeaderCache
from chainfolio.adapters.evm.datasets.transactions import FullBlock, Transaction
from chainfolio.adapters.evm.forms import Hash
from chainfolio.adapters.evm.node import Header, Node, hex_of, results_of
from chainfolio.errors import BadAnswer
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

MAX_BLOCKS = 500  # of one request
HashesByHeight: TypeAlias = Mapping[int, Collection[str]]


class PartialBlock(NamedTuple):
    """A block with some of its transactions.

    `tx_hashes` has the hashes of all transactions; `block.transactions` has those at `indices` only.
    """

    header: Header
    tx_hashes: tuple[str, ...]
    block: FullBlock
    indices: list[int]


async def read_by_index(
    node: Node, endpoint: Endpoint, heights: Sequence[int], hashes: HashesByHeight, cache: HeaderCache
) -> list[PartialBlock]:
    """Read final blocks with only the transactions of the given hashes.

    Args:
        node: The chain's endpoints, for their quorum.
        endpoint: The endpoint that is asked.
        heights: The blocks to read.
        hashes: The hashes by height.
        cache: Headers that were read before; those that are used are removed.

    Raises:
        UnsupportedMethod: The node does not serve transactions by index.
        BadAnswer: A block does not have one of the hashes, or the node has another transaction at its index.
    """
    blocks: list[PartialBlock] = []
    for start in range(0, len(heights), MAX_BLOCKS):
        headers = await _headers(node, endpoint, heights[start : start + MAX_BLOCKS], cache)
        hash_lists = [
            tuple(typed(endpoint.name, bytes(each), Hash).lower() for each in header.transactions) for header in headers
        ]
        index_lists = [
            [index for index, tx_hash in enumerate(tx_hashes) if tx_hash in hashes.get(header.height, ())]
            for header, tx_hashes in zip(headers, hash_lists, strict=True)
        ]
        requests = [
            Request("eth_getTransactionByBlockHashAndIndex", (header.hash, hex_of(index)))
            for header, indices in zip(headers, index_lists, strict=True)
            for index in indices
        ]
        answers = iter(await results_of(endpoint, requests))
        for header, tx_hashes, indices in zip(headers, hash_lists, index_lists, strict=True):
            if len(indices) < len(set(hashes.get(header.height, ()))):
                raise BadAnswer(endpoint.name, f"block {header.height} lacks a transaction that is said to lie in it")
            transactions = [_transaction(endpoint.name, next(answers), tx_hashes[index]) for index in indices]
            block = FullBlock(
                header.number,
                header.hash,
                header.timestamp,
                transactions,
                header.withdrawals,
                logsBloom=header.logsBloom,
            )
            blocks.append(PartialBlock(header, tx_hashes, block, indices))
    return blocks


def _transaction(source: str, answer: bytes, tx_hash: str) -> Transaction:
    """Decode a transaction; BadAnswer if the node lacks it or gives another."""
    if answer == b"null":
        raise BadAnswer(source, f"does not have transaction {tx_hash}, which a block of its chain lists")
    transaction = typed(source, answer, Transaction)
    if transaction.hash.lower() != tx_hash:
        raise BadAnswer(source, f"transaction {transaction.hash} in answer to {tx_hash}")
    return transaction


async def _headers(node: Node, endpoint: Endpoint, heights: Sequence[int], cache: HeaderCache) -> list[Header]:
    """Take headers from the cache, the others from the endpoint; with a quorum, all from the endpoint."""
    headers = {} if node.quorum > 1 else {height: header for height in heights if (header := cache.pop(height))}
    missing = [height for height in heights if height not in headers]
    if missing:
        headers |= {header.height: header for header in await node.headers_at(endpoint, missing)}
    return [headers[height] for height in heights]
