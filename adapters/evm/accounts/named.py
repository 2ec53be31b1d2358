"""Transactions of known hashes by their place: their blocks are headers then, and no bodies of others are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from adapters.evm.accounts.remembered import Remembered
from adapters.evm.datasets.transactions import FullBlock, Transaction
from adapters.evm.forms import Hash
from adapters.evm.node import Header, Node, hex_of, results_of
from chainfolio.errors import BadAnswer
from transport.endpoint import Endpoint
from transport.wire import Request, typed

AT_ONCE = 500  # blocks
Sent = Mapping[int, Collection[str]]  # hashes by height
Read = tuple[Header, tuple[str, ...], FullBlock, list[int]]  # hashes of all, those that were read, and their places


async def named(node: Node, endpoint: Endpoint, heights: Sequence[int], sent: Sent, kept: Remembered) -> list[Read]:
    """Some final blocks with the transactions of some hashes alone. Unsupported where the node does not know places."""
    found: list[Read] = []
    for start in range(0, len(heights), AT_ONCE):
        headers = await _headers(node, endpoint, heights[start : start + AT_ONCE], kept)
        listed = [
            tuple(typed(endpoint.name, bytes(each), Hash).lower() for each in one.transactions) for one in headers
        ]
        places = [
            [index for index, name in enumerate(names) if name in sent.get(header.height, ())]
            for header, names in zip(headers, listed, strict=True)
        ]
        reads = [
            Request("eth_getTransactionByBlockHashAndIndex", (header.hash, hex_of(index)))
            for header, indices in zip(headers, places, strict=True) for index in indices
        ]  # fmt: skip
        answers = iter(await results_of(endpoint, reads))
        for header, names, indices in zip(headers, listed, places, strict=True):
            if len(indices) < len(set(sent.get(header.height, ()))):
                raise BadAnswer(endpoint.name, f"block {header.height} lacks a transaction that is said to lie in it")
            own = [_read(endpoint.name, next(answers), names[index]) for index in indices]
            full = FullBlock(
                header.number, header.hash, header.timestamp, own, header.withdrawals, logsBloom=header.logsBloom
            )
            found.append((header, names, full, indices))
    return found


def _read(source: str, answer: bytes, name: str) -> Transaction:
    if answer == b"null":
        raise BadAnswer(source, f"does not have transaction {name}, which a block of its chain lists")
    sent = typed(source, answer, Transaction)
    if sent.hash.lower() != name:
        raise BadAnswer(source, f"transaction {sent.hash} in answer to {name}")
    return sent


async def _headers(node: Node, endpoint: Endpoint, heights: Sequence[int], kept: Remembered) -> list[Header]:
    """The headers, those that are remembered and the others. Where endpoints are compared, each gives its own."""
    known = {} if node.quorum > 1 else {height: header for height in heights if (header := kept.take(height))}
    missing = [height for height in heights if height not in known]
    if missing:
        known |= {header.height: header for header in await node.headers_at(endpoint, missing)}
    return [known[height] for height in heights]
