"""What a back-fill would cost, from a few parts of it that are read and not kept.

The first part is small. Where the endpoint takes all calls at once, the others are whole chunks, and requests grow with
the chunks; where it limits batches, the parts are small and few, and requests grow with the calls.
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
from chainfolio.tables import TABLES
from indexer.account_estimate import batch_of, paced_s, spent
from indexer.collect import BATCH_BLOCKS, BATCH_ROWS
from indexer.work import Work, heights
from storage.lake import Lake

if TYPE_CHECKING:
    from chainfolio.chains import Chain, Collected
    from chainfolio.seams import Clock

SAMPLES = 5
MAX_REQUESTS = 17  # of all parts, about: one that is refused or hangs is sent again
FIRST, GROWTH = 12, 8  # blocks of the first part, which shows the usual limit of batches; the next is so much larger
FILLED = 0.7  # of the calls that a batch may have, in those of a run
BYTES_PER_EVENT = 20


async def estimate(chain: Chain, work: Sequence[Work], scratch: Path, clock: Clock) -> dict[str, int]:
    """Blocks, events, requests, megabytes and seconds of a run.

    It costs about MAX_REQUESTS requests, or one small part of each kind of work, and one commit of what they had to a
    lake below `scratch`, which is gone afterwards.
    """
    commits_s = 0.0
    events = requests = calls = spent_s = 0.0
    begun = chain.requests
    for number, item in enumerate(work, 1):
        pieces = [piece for span in item.spans for piece in span.cut(chain.settings.span)]
        limit = begun + MAX_REQUESTS * number // len(work)
        samples = [each async for each in _samples(chain, item, pieces, limit, clock)]
        share = sum(each.blocks for each in samples) / len(item.spans)
        events += sum(each.chunk.events for each in samples) / share
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
    """One part that was read, and what that cost."""

    blocks: int
    chunk: Collected
    requests: int
    calls: int
    seconds: float  # float: seconds


async def _samples(
    chain: Chain, item: Work, pieces: Sequence[Span], limit: int, clock: Clock
) -> AsyncIterator[_Sample]:
    """Parts from the middles of some chunks: the middle chunk first, then the ends.

    They grow while the endpoint takes all calls at once; else they stay small, and the chain's requests below `limit`.
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
