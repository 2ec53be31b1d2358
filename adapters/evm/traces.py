"""What happened inside the transactions of blocks, by whichever way an endpoint knows: learnt once, and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.evm.datasets.internal import Moved, Place, of_frames, of_traces
from adapters.evm.endpoint import Endpoint
from adapters.evm.node import Header, Node, hex_of
from adapters.evm.wire import Request, typed
from chainfolio.errors import BadAnswer, SourceError, Unsupported

# Traces are large: so many blocks are asked for at once.
BLOCKS_AT_ONCE = 10
ROUTE = "traces"


@dataclass(frozen=True, slots=True)
class Route:
    """One way to ask for a block's traces, and how its answer is read."""

    request: Callable[[Place], Request]
    read: Callable[[str, bytes, Place], list[Moved]]


_CALLS: dict[str, Any] = {"tracer": "callTracer"}
ROUTES: dict[int, Route] = {
    1: Route(lambda place: Request("trace_block", (hex_of(place.height),)), of_traces),
    2: Route(lambda place: Request("debug_traceBlockByHash", (place.hash, _CALLS)), of_frames),
    3: Route(lambda place: Request("debug_traceBlockByNumber", (hex_of(place.height), _CALLS)), of_frames),
}


def places(source: str, headers: Sequence[Header]) -> list[Place]:
    """Blocks that have transactions, as they are asked for."""
    return [
        Place(
            header.height, header.time_s, header.hash,
            tuple(typed(source, bytes(each), str).lower() for each in header.transactions),
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
    known = endpoint.learnt.get(ROUTE, 0)
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
        cure="use a node with trace_block or debug_traceBlockByHash, or leave `internal` out of the chain's datasets",
    )  # fmt: skip


async def _ask(endpoint: Endpoint, route: Route, part: Sequence[Place]) -> list[list[Moved]]:
    answers = await endpoint.ask([route.request(place) for place in part], height=part[0].height)
    found = []
    for place, answer in zip(part, answers, strict=True):
        if isinstance(answer, SourceError):
            raise answer
        if answer == b"null":
            raise BadAnswer(endpoint.name, f"has no traces of block {place.height}")
        found.append(await asyncio.to_thread(route.read, endpoint.name, answer, place))
    return found
