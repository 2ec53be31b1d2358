"""Where accounts did something, by `trace_filter`: every call from them and every call to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from adapters.evm.accounts.touched import Touched, frozen
from adapters.evm.accounts.windows import Windows
from adapters.evm.datasets.internal import Trace, boundaries
from adapters.evm.node import hex_of
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, SourceError
from transport.endpoint import Endpoint
from transport.wire import Request, typed

WAY = "trace_filter"
SIDES = ("fromAddress", "toAddress")  # two questions: some nodes take both together for accounts that are both


class Filtered(Trace):
    """A trace with the height of its block."""

    blockNumber: int | None = None


class TraceFilter:
    """Asks nodes that trace."""

    def __init__(self) -> None:
        self.windows: Windows[list[Filtered]] = Windows("max_trace_span", "traces")

    async def find(self, endpoint: Endpoint, span: Span, accounts: Sequence[str]) -> Touched:
        """The blocks of a window. Unsupported where the node has no such method."""
        window, pieces = await self.windows.read(endpoint, span, lambda cut: _ask(endpoint, cut, accounts))
        sent: defaultdict[int, set[str]] = defaultdict(set)
        inside: defaultdict[int, set[str]] = defaultdict(set)
        for trace in (trace for answers in pieces for answer in answers for trace in answer):
            height = trace.blockNumber
            if height is None or height not in window:
                raise BadAnswer(endpoint.name, "a trace from outside the span that was asked for")
            if trace.transactionHash is None:
                continue  # the reward of a block
            if not trace.traceAddress:
                sent[height].add(trace.transactionHash.lower())
            elif {*boundaries(trace)[:2]} & {*accounts} and boundaries(trace)[2]:
                sent[height].add(trace.transactionHash.lower())
                inside[height].add(trace.transactionHash.lower())
        return Touched(window, WAY, tuple(sorted(sent)), frozen(inside), sent=frozen(sent))


async def _ask(
    endpoint: Endpoint, pieces: Sequence[Span], accounts: Sequence[str]
) -> list[list[list[Filtered] | SourceError]]:
    reads = [
        Request("trace_filter", ({"fromBlock": hex_of(cut.first), "toBlock": hex_of(cut.last), side: list(accounts)},))
        for cut in pieces
        for side in SIDES
    ]
    answers = iter(await endpoint.ask(reads, height=pieces[0].first))
    found: list[list[list[Filtered] | SourceError]] = []
    for _ in pieces:
        given = [next(answers) for _ in SIDES]
        found.append([a if isinstance(a, SourceError) else typed(endpoint.name, a, list[Filtered]) for a in given])
    return found
