"""What a back-fill would cost, from a few chunks spread over what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chainfolio.blocks import Span
from indexer.collect import Work

if TYPE_CHECKING:
    from adapters.evm.chain import EvmChain

SAMPLES = 5
BYTES_PER_EVENT = 20


async def estimate(chain: EvmChain, work: Sequence[Work]) -> dict[str, int]:
    """Blocks, events, requests, megabytes and seconds of a run; asking costs five chunks of each kind of work."""
    clock = chain.node.seams.clock
    events = requests = spent_s = 0.0
    for item in work:
        pieces = [piece for span in item.spans for piece in span.cut(chain.settings.span)]
        samples = _spread(pieces)
        before, start_s, found = chain.requests, clock.monotonic_s(), 0
        for sample in samples:
            found += (await chain.collect(sample, item.datasets, item.contracts)).events
        share = sum(len(sample) for sample in samples) / len(item.spans)
        events += found / share
        requests += (chain.requests - before) * len(pieces) / len(samples)
        spent_s += (clock.monotonic_s() - start_s) / share
    return {
        "blocks": sum(len(item.spans) for item in work),
        "events": round(events),
        "requests": round(requests),
        "megabytes": -(-round(events) * BYTES_PER_EVENT // 1_000_000),
        "seconds": -(-round(spent_s) // chain.settings.concurrency),
    }


def _spread(pieces: Sequence[Span]) -> list[Span]:
    """Some of the pieces, each from the middle of an equal share of them: neither the first days nor the last alone."""
    count = min(SAMPLES, len(pieces))
    return [pieces[(2 * k + 1) * len(pieces) // (2 * count)] for k in range(count)]
