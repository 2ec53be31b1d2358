"""What a back-fill would cost, from a few chunks spread over what is missing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa

from chainfolio.blocks import Span
from chainfolio.tables import TABLES
from indexer.collect import BATCH_BLOCKS, BATCH_ROWS
from indexer.work import Work, heights
from storage.lake import Lake

if TYPE_CHECKING:
    from chainfolio.chains import Chain, Collected
    from chainfolio.seams import Clock

SAMPLES = 5
BYTES_PER_EVENT = 20


async def estimate(chain: Chain, work: Sequence[Work], scratch: Path, clock: Clock) -> dict[str, int]:
    """Blocks, events, requests, megabytes and seconds of a run; asking costs five chunks of each kind of work, and one
    commit of what they had to a lake below `scratch`, which is gone afterwards."""
    commits_s = 0.0
    events = requests = spent_s = 0.0
    for item in work:
        pieces = [piece for span in item.spans for piece in span.cut(chain.settings.span)]
        samples = _spread(pieces)
        before, start_s = chain.requests, clock.monotonic_s()
        chunks = [await chain.collect(sample, item.datasets, item.contracts, events=item.events) for sample in samples]
        found = sum(chunk.events for chunk in chunks)
        share = sum(len(sample) for sample in samples) / len(item.spans)
        events += found / share
        requests += (chain.requests - before) * len(pieces) / len(samples)
        spent_s += (clock.monotonic_s() - start_s) / share
        commits_s += await asyncio.to_thread(_commits_s, chunks, share, len(item.spans), scratch, clock)
    return {
        "blocks": heights(work),
        "events": round(events),
        "requests": round(requests),
        "megabytes": -(-round(events) * BYTES_PER_EVENT // 1_000_000),
        "seconds": math.ceil(spent_s / chain.settings.concurrency + commits_s / chain.settings.worker_processes),
    }


def _commits_s(chunks: Sequence[Collected], share: float, blocks: int, scratch: Path, clock: Clock) -> float:
    """Seconds of all commits: one batch like those of the run is made up of what was fetched, and written twice, for
    the first time makes the tables too."""
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
    """Some of the pieces, each from the middle of an equal share of them: neither the first days nor the last alone."""
    count = min(SAMPLES, len(pieces))
    return [pieces[(2 * k + 1) * len(pieces) // (2 * count)] for k in range(count)]
