"""Estimate the cost of a back-fill from samples, which are not stored.

The first sample is small. If the endpoint accepts all calls in one batch, the others are whole chunks, and requests
grow with the chunks. If it limits batches, samples are small and few, and requests grow with the calls.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa

from chainfolio.blocks import Span
from chainfolio.indexer.account_estimate import batch_of, paced_s, spent
from chainfolio.indexer.collect import BATCH_BLOCKS, BATCH_ROWS
from chainfolio.indexer.work import Work, heights
from chainfolio.storage.lake import Lake
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from chainfolio.chain_results import SpanTables
    from chainfolio.chains import Chain
    from chainfolio.environment import Clock

SAMPLES = 5
MAX_REQUESTS = 17  # over all samples, approximately: failed requests are repeated
FIRST, GROWTH = 12, 8  # blocks of the first sample, which shows the limit of batches; factor to the next one
FILLED = 0.7  # average share of the batch limit that a run uses
BYTES_PER_EVENT = 20


async def estimate(chain: Chain, work: Sequence[Work], scratch: Path, clock: Clock) -> dict[str, int]:
    """Return the `blocks`, `events`, `requests`, `megabytes` on disk and `seconds` of a run.

    This sends about MAX_REQUESTS requests, or one small sample per kind of work, and writes one commit of the samples
    to a temporary lake below `scratch`.
    """
    commits_s = 0.0
    events = requests = calls = spent_s = 0.0
    first_request = chain.requests
    for number, item in enumerate(work, 1):
        pieces = [piece for span in item.spans for piece in span.cut(chain.settings.span)]
        limit = first_request + MAX_REQUESTS * number // len(work)
        samples = [each async for each in _samples(chain, item, pieces, limit, clock)]
        share = sum(each.blocks for each in samples) / len(item.spans)
        events += sum(each.chunk.event_count for each in samples) / share
        item_calls = sum(each.calls for each in samples) / share
        calls += item_calls
        if (batch := batch_of(chain)) is None:
            requests += sum(each.requests for each in samples) * len(pieces) / len(samples)
            spent_s += sum(each.seconds for each in samples) / share / chain.settings.concurrency
        else:
            requests += max(len(pieces), item_calls / (FILLED * batch))
        chunks = [each.chunk for each in samples]
        commits_s += await asyncio.to_thread(_commits_s, chunks, share, len(item.spans), scratch, clock)
    run_s = max(spent_s, paced_s(chain, round(requests), round(calls)) if batch_of(chain) else 0.0)
    return {
        "blocks": heights(work),
        "events": round(events),
        "requests": round(requests),
        "megabytes": -(-round(events) * BYTES_PER_EVENT // 1_000_000),
        "seconds": math.ceil(run_s + commits_s / chain.settings.worker_processes),
    }


@dataclass(frozen=True, slots=True)
class _Sample:
    """One sample and its cost."""

    blocks: int
    chunk: SpanTables
    requests: int
    calls: int
    seconds: float  # float: seconds


async def _samples(
    chain: Chain, item: Work, pieces: Sequence[Span], limit: int, clock: Clock
) -> AsyncIterator[_Sample]:
    """Yield samples from the middles of some chunks: the middle chunk first, then the ends.

    They grow while the endpoint accepts all calls in one batch; else they stay small, and the chain's requests below
    `limit`.
    """
    size, last = FIRST, None
    spread = _spread(pieces)
    for piece in sorted(
        spread, key=lambda each: (each != spread[len(spread) // 2], each not in (spread[0], spread[-1]))
    ):
        if last is not None and batch_of(chain) is not None:
            if chain.requests + last.requests > limit:
                return
            size = FIRST
        begin = piece.first + max(0, len(piece) - size) // 2
        part = Span(begin, min(piece.last, begin + size - 1))
        before, (calls, _), start_s = chain.requests, spent(chain), clock.monotonic_s()
        chunk = await chain.collect(part, item.datasets, item.contracts, events=item.events)
        calls_then, _ = spent(chain)
        took_s = clock.monotonic_s() - start_s
        last = _Sample(len(part), chunk, chain.requests - before, calls_then - calls, took_s)
        yield last
        size *= GROWTH if size < len(piece) else 1


def _commits_s(chunks: Sequence[SpanTables], share: float, blocks: int, scratch: Path, clock: Clock) -> float:
    """Return the seconds of all commits of a run; 0 if the samples have no rows.

    A batch as large as those of the run is made from the samples and written twice to a temporary lake, because the
    first write creates the tables.

    Args:
        share: The part of the run that the samples are.
        blocks: The number of blocks of the run.
    """
    fetched = {
        name: pa.concat_tables([chunk.tables[name] for chunk in chunks if name in chunk.tables])
        for name in {name for chunk in chunks for name in chunk.tables}
    }
    rows = sum(map(len, fetched.values()))
    if not rows:
        return 0.0
    batches = max(1, math.ceil(rows / share / BATCH_ROWS), math.ceil(blocks / BATCH_BLOCKS))
    times = max(1, round(rows / share / batches / rows))
    scratch.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="estimate-", dir=scratch) as folder:
        lake, start_s = Lake(folder), 0.0
        for batch in range(2):
            start_s = clock.monotonic_s()
            for name, table in fetched.items():
                lake.append(TABLES[name], pa.concat_tables([table] * times), stream="estimate", batch=batch)
        return batches * (clock.monotonic_s() - start_s)


def _spread(pieces: Sequence[Span]) -> list[Span]:
    """Return some pieces, one from the middle of each equal share of them."""
    count = min(SAMPLES, len(pieces))
    return [pieces[(2 * k + 1) * len(pieces) // (2 * count)] for k in range(count)]
