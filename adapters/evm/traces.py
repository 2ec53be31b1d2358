"""What happened inside the transactions of blocks, by whichever way an endpoint knows: learnt once, and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from adapters.evm.datasets.internal import Moved, Place, of_frames, of_traces
from adapters.evm.forms import Hash
from adapters.evm.node import Header, Node, hex_of
from chainfolio.errors import BadAnswer, SourceError, Unsupported
from transport.endpoint import Answer, Endpoint
from transport.wire import Request, typed

# Traces are large: so many blocks are asked for at once.
BLOCKS_AT_ONCE = 10
ROUTE = "traces"


@dataclass(frozen=True, slots=True)
class Route:
    """One way to ask for a block's traces, and how its answers are read."""

    reads: Callable[[Place], Sequence[Request]]
    read: Callable[[str, Sequence[bytes], Place], list[Moved]]


CALLS: dict[str, Any] = {"tracer": "callTracer"}


class _Steps(msgspec.Struct):
    """What a node that does not know the tracer traces instead, or a frame, which has none."""

    structLogs: Any = None


def of_transactions(source: str, answers: Sequence[bytes], place: Place) -> list[Moved]:
    """Traces of single transactions as those of their block."""
    if any(typed(source, answer, _Steps).structLogs is not None for answer in answers):
        raise Unsupported(source, "debug_traceTransaction ignores the callTracer")
    traced = (
        b'{"txHash":%b,"result":%b}' % (msgspec.json.encode(tx_hash), answer)
        for tx_hash, answer in zip(place.transactions, answers, strict=True)
    )
    return of_frames(source, b"[" + b",".join(traced) + b"]", place)


def _of_block(read: Callable[[str, bytes, Place], list[Moved]]) -> Callable[[str, Sequence[bytes], Place], list[Moved]]:
    return lambda source, answers, place: read(source, answers[0], place)


ROUTES: dict[int, Route] = {
    1: Route(lambda place: [Request("trace_block", (hex_of(place.height),))], _of_block(of_traces)),
    2: Route(lambda place: [Request("debug_traceBlockByHash", (place.hash, CALLS))], _of_block(of_frames)),
    3: Route(lambda place: [Request("debug_traceBlockByNumber", (hex_of(place.height), CALLS))], _of_block(of_frames)),
    4: Route(
        lambda place: [Request("debug_traceTransaction", (tx_hash, CALLS)) for tx_hash in place.transactions],
        of_transactions,
    ),
}


def places(source: str, headers: Sequence[Header]) -> list[Place]:
    """Blocks that have transactions, as they are asked for."""
    return [
        Place(
            header.height, header.time_s, header.hash,
            tuple(typed(source, bytes(each), Hash).lower() for each in header.transactions),
        )
        for header in headers if header.transactions
    ]  # fmt: skip


async def moved(node: Node, blocks: Sequence[Place]) -> dict[Place, list[Moved]]:
    """What moved inside each block. Unsupported where no endpoint traces."""

    async def at(endpoint: Endpoint) -> list[list[Moved]]:
        found: list[list[Moved]] = []
        for start in range(0, len(blocks), BLOCKS_AT_ONCE):
            found += await _traced(endpoint, blocks[start : start + BLOCKS_AT_ONCE])
        return found

    if not blocks:
        return {}
    inside = await node.agreed(
        at,
        key=tuple,
        asked=lambda question: f"the traces of block {blocks[question].height}",
        final=lambda question: node.is_final(blocks[question].height),
        kind="traces",
    )
    return dict(zip(blocks, inside, strict=True))


async def _traced(endpoint: Endpoint, part: Sequence[Place]) -> list[list[Moved]]:
    """By the way that is known to work; else by the first that does. A way that stops working is looked for again."""
    known = endpoint.capabilities.get(ROUTE, 0)
    ways = [known, *(number for number in ROUTES if number != known)] if known else [*ROUTES]
    refusals = []
    for number in ways:
        try:
            found = await _ask(endpoint, ROUTES[number], part)
        except Unsupported as refusal:
            refusals.append(refusal.reason)
            continue
        endpoint.learn(ROUTE, number)
        return found
    raise Unsupported(
        endpoint.name, f"does not trace blocks: {refusals[0]}",
        remedy="use a node with trace_block or the callTracer, or leave `internal` out of the chain's datasets",
    )  # fmt: skip


async def _ask(endpoint: Endpoint, route: Route, part: Sequence[Place]) -> list[list[Moved]]:
    reads = [route.reads(place) for place in part]
    answers = iter(await endpoint.ask([ask for several in reads for ask in several], height=part[0].height))
    found = []
    for place, several in zip(part, reads, strict=True):
        given = [_given(endpoint, next(answers), place) for _ in several]
        found.append(await asyncio.to_thread(route.read, endpoint.name, given, place))
    return found


def _given(endpoint: Endpoint, answer: Answer, place: Place) -> bytes:
    if isinstance(answer, SourceError):
        raise answer
    if answer == b"null":
        raise BadAnswer(endpoint.name, f"has no traces of block {place.height}")
    return answer
