"""Find active blocks with `trace_filter`: all calls from accounts and all calls to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from chainfolio.adapters.evm.accounts.active_blocks import ActiveBlocks, freeze
from chainfolio.adapters.evm.accounts.windows import Windows
from chainfolio.adapters.evm.datasets.internal import Trace, value_of
from chainfolio.adapters.evm.node import hex_of
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, SourceError
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

METHOD = "trace_filter"
SIDES = ("fromAddress", "toAddress")  # two questions: some nodes require both sides to match if they come in one


class FilteredTrace(Trace):
    """A trace with the height of its block."""

    blockNumber: int | None = None


class TraceFilter:
    """Searches with `trace_filter`, and remembers the spans that endpoints accept."""

    def __init__(self) -> None:
        self.windows: Windows[list[FilteredTrace]] = Windows("max_trace_span", "traces")

    async def find(self, endpoint: Endpoint, span: Span, accounts: Sequence[str]) -> ActiveBlocks:
        """Find the active blocks of the next window of a span, which is as large as the endpoint accepts.

        Transactions of the accounts count, and calls inside others that move coins from or to them: these need traces.

        Raises:
            UnsupportedMethod: The endpoint has no `trace_filter`.
            BadAnswer: A trace lies outside the window.
        """
        window, pieces = await self.windows.read(endpoint, span, lambda spans: _read(endpoint, spans, accounts))
        tx_hashes: defaultdict[int, set[str]] = defaultdict(set)
        traced_hashes: defaultdict[int, set[str]] = defaultdict(set)
        for trace in (trace for answers in pieces for answer in answers for trace in answer):
            height = trace.blockNumber
            if height is None or height not in window:
                raise BadAnswer(endpoint.name, "a trace from outside the span that was asked for")
            if trace.transactionHash is None:
                continue  # the reward of a block
            tx_hash = trace.transactionHash.lower()
            sender, recipient, raw = value_of(trace)
            if not trace.traceAddress:
                tx_hashes[height].add(tx_hash)
            elif raw and {sender.lower(), recipient.lower()} & {*accounts}:
                tx_hashes[height].add(tx_hash)
                traced_hashes[height].add(tx_hash)
        heights = tuple(sorted(tx_hashes))
        return ActiveBlocks(window, METHOD, heights, freeze(traced_hashes), tx_hashes=freeze(tx_hashes))


async def _read(
    endpoint: Endpoint, pieces: Sequence[Span], accounts: Sequence[str]
) -> list[list[list[FilteredTrace] | SourceError]]:
    """Return, for each piece, the traces from the accounts and those to them, or the error in their place."""
    requests = [
        Request(
            "trace_filter", ({"fromBlock": hex_of(piece.first), "toBlock": hex_of(piece.last), side: list(accounts)},)
        )
        for piece in pieces
        for side in SIDES
    ]
    answers = [
        each if isinstance(each, SourceError) else typed(endpoint.name, each, list[FilteredTrace])
        for each in await endpoint.ask(requests, height=pieces[0].first)
    ]
    return [answers[start : start + len(SIDES)] for start in range(0, len(answers), len(SIDES))]
