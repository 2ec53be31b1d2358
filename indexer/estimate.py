"""What a back-fill would cost, from a few short samples spread over what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chainfolio.blocks import Span
from indexer.collect import Work

if TYPE_CHECKING:
    from adapters.evm.chain import EvmChain

SAMPLES = 5
SAMPLE_BLOCKS = 20
BYTES_PER_EVENT = 20


async def estimate(chain: EvmChain, work: Sequence[Work]) -> dict[str, int]:
    """Blocks, events, requests, megabytes and seconds of a run; samples cost about ten requests."""
    clock = chain.node.seams.clock
    blocks = sum(len(item.spans) for item in work)
    events = seen = asked = 0
    spent_s = 0.0
    for item in work:
        for sample in _samples(item):
            before, start_s = chain.requests, clock.monotonic_s()
            found = await chain.collect(sample, item.datasets, item.contracts)
            spent_s += clock.monotonic_s() - start_s
            asked += chain.requests - before
            events, seen = events + found.events, seen + len(sample)
    if not seen:
        return {"blocks": blocks, "events": 0, "requests": 0, "megabytes": 0, "seconds": 0}
    chunks = -(-blocks // chain.settings.span)
    return {
        "blocks": blocks,
        "events": events * blocks // seen,
        "requests": chunks * max(1, asked // max(1, sum(len(list(_samples(item))) for item in work))),
        "megabytes": -(-events * blocks // seen * BYTES_PER_EVENT // 1_000_000),
        "seconds": -(-int(spent_s * blocks / seen) // chain.settings.concurrency),
    }


def _samples(work: Work) -> list[Span]:
    """Short spans, evenly spread over all that is missing."""
    result = []
    for span in work.spans:
        step = max(1, len(span) // SAMPLES)
        for first in range(span.first, span.last + 1, step):
            result.append(Span(first, min(first + SAMPLE_BLOCKS - 1, span.last)))
    return result[:: max(1, len(result) // SAMPLES)][:SAMPLES]
