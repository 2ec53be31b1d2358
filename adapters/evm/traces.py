"""Read internal transfers of blocks by the trace method that an endpoint supports; it is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from chainfolio.adapters.evm.datasets.internal import CoinTransfer, TracedBlock, of_frames, of_traces
from chainfolio.adapters.evm.forms import Hash
from chainfolio.adapters.evm.node import Header, Node, hex_of
from chainfolio.errors import BadAnswer, SourceError, UnsupportedMethod
from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.wire import Request, typed

# The blocks of one request: traces are large.
BLOCKS_AT_ONCE = 10
ROUTE = "traces"


@dataclass(frozen=True, slots=True)
class Route:
    """A trace method: its requests for a block, and the parser of their results."""

    reads: Callable[[TracedBlock], Sequence[Request]]
    read: Callable[[str, Sequence[bytes], TracedBlock], list[CoinTransfer]]


CALLS = {"tracer": "callTracer"}


class _Steps(msgspec.Struct):
    """The result of a node that ignores the tracer (`structLogs`), or a call frame, which has none."""

    structLogs: object = None


def of_transactions(source: str, answers: Sequence[bytes], block: TracedBlock) -> list[CoinTransfer]:
    """Parse traces of single transactions like those of their block.

    Raises:
        UnsupportedMethod: The node ignores the callTracer.
    """
    if any(typed(source, answer, _Steps).structLogs is not None for answer in answers):
        raise UnsupportedMethod(source, "debug_traceTransaction ignores the callTracer")
    traced = (
        b'{"txHash":%b,"result":%b}' % (msgspec.json.encode(tx_hash), answer)
        for tx_hash, answer in zip(block.transactions, answers, strict=True)
    )
    return of_frames(source, b"[" + b",".join(traced) + b"]", block)


def _of_block(
    read: Callable[[str, bytes, TracedBlock], list[CoinTransfer]],
) -> Callable[[str, Sequence[bytes], TracedBlock], list[CoinTransfer]]:
    return lambda source, answers, block: read(source, answers[0], block)


ROUTES: dict[int, Route] = {
    1: Route(lambda place: [Request("trace_block", (hex_of(place.height),))], _of_block(of_traces)),
    2: Route(lambda place: [Request("debug_traceBlockByHash", (place.hash, CALLS))], _of_block(of_frames)),
    3: Route(lambda place: [Request("debug_traceBlockByNumber", (hex_of(place.height), CALLS))], _of_block(of_frames)),
    4: Route(
        lambda place: [Request("debug_traceTransaction", (tx_hash, CALLS)) for tx_hash in place.transactions],
        of_transactions,
    ),
}


def traceable_blocks(source: str, headers: Sequence[Header]) -> list[TracedBlock]:
    """Return the blocks with transactions, as keys of their traces."""
    return [
        TracedBlock(
            header.height,
            header.time_s,
            header.hash,
            tuple(typed(source, bytes(tx_hash), Hash).lower() for tx_hash in header.transactions),
        )
        for header in headers
        if header.transactions
    ]


async def internal_transfers(node: Node, blocks: Sequence[TracedBlock]) -> dict[TracedBlock, list[CoinTransfer]]:
    """Return the internal transfers of each block, without the transactions' own values; {} for no blocks.

    BLOCKS_AT_ONCE blocks are read per request.

    Raises:
        UnsupportedMethod: No endpoint traces blocks.
        HistoryUnavailable: The state of the blocks is gone.
    """

    async def at(endpoint: Endpoint) -> list[list[CoinTransfer]]:
        traced: list[list[CoinTransfer]] = []
        for start in range(0, len(blocks), BLOCKS_AT_ONCE):
            traced += await _trace_by_route(endpoint, blocks[start : start + BLOCKS_AT_ONCE])
        return traced

    if not blocks:
        return {}
    transfers = await node.agreed(
        at,
        key=tuple,
        describe=lambda question: f"the traces of block {blocks[question].height}",
        is_final=lambda question: node.is_final(blocks[question].height),
        kind="traces",
    )
    return dict(zip(blocks, transfers, strict=True))


async def _trace_by_route(endpoint: Endpoint, blocks: Sequence[TracedBlock]) -> list[list[CoinTransfer]]:
    """Trace by the method that worked before, or else by the first that does, and remember it.

    Raises UnsupportedMethod if none works.
    """
    route_number = endpoint.capabilities.get(ROUTE, 0)
    numbers = [route_number, *(number for number in ROUTES if number != route_number)] if route_number else [*ROUTES]
    refusals = []
    for number in numbers:
        try:
            transfers = await _ask(endpoint, ROUTES[number], blocks)
        except UnsupportedMethod as refusal:
            refusals.append(refusal.reason)
            continue
        endpoint.learn(ROUTE, number)
        return transfers
    raise UnsupportedMethod(
        endpoint.name,
        f"does not trace blocks: {refusals[0]}",
        remedy="use a node with trace_block or the callTracer, or leave `internal` out of the chain's datasets",
    )


async def _ask(endpoint: Endpoint, route: Route, blocks: Sequence[TracedBlock]) -> list[list[CoinTransfer]]:
    """Return the coin transfers inside each block by one route; raise if one block has no traces."""
    reads = [route.reads(block) for block in blocks]
    answers = iter(await endpoint.ask([read for block_reads in reads for read in block_reads], height=blocks[0].height))
    transfers = []
    for block, block_reads in zip(blocks, reads, strict=True):
        block_answers = [_trace_answer(endpoint, next(answers), block) for _ in block_reads]
        transfers.append(await asyncio.to_thread(route.read, endpoint.name, block_answers, block))
    return transfers


def _trace_answer(endpoint: Endpoint, answer: Answer, block: TracedBlock) -> bytes:
    """Return the traces of a block as JSON; raise the error of the answer, or BadAnswer if it has none."""
    if isinstance(answer, SourceError):
        raise answer
    if answer == b"null":
        raise BadAnswer(endpoint.name, f"has no traces of block {block.height}")
    return answer
