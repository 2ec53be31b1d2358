"""Back-fill: final blocks straight into the lake, each row exactly once, from wherever an earlier run stopped.

A span is fetched in chunks, several on their way at once; finished chunks are put together until there is enough for
one commit a table. Before the lake is touched the batch is written down as an intent; each commit carries the batch's
number; afterwards the batch is closed and its span counts as covered. A process that dies in between leaves an open
batch, and the next run makes its commits again: those that had happened change nothing. The numbers of one stream rise,
and a number below the last one counts as done: so an open batch is carried out before any new one is begun.

Nothing is written to the lake at or above the lowest block of the tail: from there on, rows come by way of the tail.

The histories of accounts are fetched in pieces that the chain chooses: the next one begins where the last one ended.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from chainfolio.blocks import Block, Span, Spans
from chainfolio.chains import Capability, having, newest_in
from chainfolio.errors import BadAnswer, OverBudget
from chainfolio.scopes import account_filter
from chainfolio.seams import Seams
from chainfolio.tables import TABLES
from indexer.checked import checked
from indexer.doubles import without_stored
from indexer.materialise import HISTORIES
from indexer.progress import Progress
from indexer.rewind import finish_forgetting, finish_rewind
from indexer.scopes import NO_END, UNREAD, group_of, lacking
from indexer.work import Work, missing
from indexer.worker_pool import BoundaryCheck

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.budgets import Budget
    from chainfolio.chains import Chain, Collected
    from indexer.worker_pool import Boundaries, WorkerProcess
    from storage.lake import Lake
    from storage.tail import Batch, Tail

BATCH_ROWS = 65_536
BATCH_BLOCKS = 20_000
# A killed run has no more than this to fetch again, however slow the node is.
BATCH_S = 30.0
# Of accounts, whose rows are few and cost a request each, no more than about this.
BATCH_REQUESTS = 200


@dataclass(slots=True)
class _Pending:
    """Chunks that wait for their commit."""

    since_s: float
    enough: int  # requests that the chain has made by then
    chunks: list[Collected] = field(default_factory=list)
    rows: int = 0

    def fits(self, chunk: Collected) -> bool:
        """Whether a chunk has the same datasets as those that wait: of accounts, the nodes may not give all."""
        return not self.chunks or self.chunks[0].ways.keys() == chunk.ways.keys()

    def add(self, chunk: Collected) -> None:
        self.chunks.append(chunk)
        self.rows += sum(len(table) for table in chunk.tables.values())

    def read(self, work: Work) -> tuple[str, ...]:
        """The datasets that were read: of accounts, those that the nodes gave."""
        return tuple(
            name for name in work.datasets if not work.accounts or all(name in chunk.ways for chunk in self.chunks)
        )

    @property
    def span(self) -> Span:
        return Span(self.chunks[0].span.first, self.chunks[-1].span.last)

    def is_full(self, now_s: float, requests: int) -> bool:
        return (
            self.rows >= BATCH_ROWS
            or len(self.span) >= BATCH_BLOCKS
            or now_s - self.since_s >= BATCH_S
            or requests >= self.enough
        )

    def tables(self) -> dict[str, pa.Table]:
        import pyarrow as pa

        names = sorted({name for chunk in self.chunks for name in chunk.tables})
        return {name: pa.concat_tables([c.tables[name] for c in self.chunks if name in c.tables]) for name in names}


def stream(chain: str, worker_process: int) -> str:
    """Under which name a process marks its commits: the numbers of one stream only rise."""
    return f"{chain}/collect/{worker_process}" if worker_process else f"{chain}/collect"


class _Pieces:
    """Pieces of a span for several takers: about one batch each by the rows seen so far, smaller towards the end."""

    def __init__(self, span: Span, chunk: int, takers: int, progress: Progress) -> None:
        self._next, self._last, self._chunk, self._takers = span.first, span.last, chunk, takers
        self._progress = progress
        self._blocks, self._events = progress.blocks, progress.events

    def next(self) -> Span | None:
        """The next piece; None at the end. Whole chunks."""
        if self._next > self._last:
            return None
        left = self._last - self._next + 1
        blocks, events = self._progress.blocks - self._blocks, self._progress.events - self._events
        wanted = BATCH_ROWS * blocks // events if events else (BATCH_BLOCKS if blocks else 4 * self._chunk)
        even = -(-left // self._takers)
        size = max(1, round(min(wanted, even, BATCH_BLOCKS) / self._chunk)) * self._chunk
        piece = Span(self._next, min(self._next + size - 1, self._last))
        self._next = piece.last + 1
        return piece


class Collector:
    """Fetches and commits what is missing of one chain. The caller holds the chain's lock."""

    def __init__(
        self,
        chain: Chain,
        lake: Lake,
        tail: Tail,
        seams: Seams,
        progress: Progress,
        *,
        worker_process: int = 0,
        ends: Boundaries | None = None,
        budget: Budget | None = None,
        stops: Callable[[], bool] = lambda: False,
    ) -> None:
        """`budget` is what reading accounts may ask of the nodes; work ends early, between two batches, once it
        `stops`."""
        self.chain, self.lake, self.tail, self.seams, self.progress = chain, lake, tail, seams, progress
        self.worker_process, self._boundaries = worker_process, ends or BoundaryCheck(chain.key)
        self._budget, self._stops = budget, stops

    async def run(self, work: Sequence[Work], worker_processes: Sequence[WorkerProcess] = ()) -> None:
        """Carry out all work, here and in the worker processes. What was committed stays; an error leaves the rest."""
        await self.recover()
        for item in work:
            for span in item.spans:
                if not self._stops():
                    await self._rest(span, item, worker_processes)

    async def _rest(self, span: Span, item: Work, worker_processes: Sequence[WorkerProcess]) -> None:
        """What is still missing of a span by now: an earlier batch, or the tail, may have got a part of it."""
        kept = self.tail.blocks(self.chain.key)
        below = Span(0, kept[0].height - 1) if kept and kept[0].height else Span(0, NO_END)
        if kept and kept[0].height <= span.first:
            return
        if item.accounts:
            wanted = dict.fromkeys(item.accounts, span)
            for spans, accounts in lacking(self.tail, self.chain.key, item.datasets, wanted, again=True):
                for part in spans & [below]:
                    await self.piece(part, Work(spans, item.datasets, tuple(map(account_filter, accounts))))
            return
        for left in missing(self.tail, self.chain.key, span, item.datasets, item.contracts, item.events):
            for part in left.spans & [below]:
                await self._side_by_side(part, left, worker_processes)

    async def _side_by_side(self, span: Span, work: Work, worker_processes: Sequence[WorkerProcess]) -> None:
        """A span in pieces: whoever is free takes the next, so that all are done at about the same time."""
        if not worker_processes or len(span) <= 2 * self.chain.settings.span:
            await self.piece(span, work)
            return
        pieces = _Pieces(span, self.chain.settings.span, 1 + len(worker_processes), self.progress)

        async def here() -> None:
            while not self._stops() and (piece := pieces.next()) is not None:
                await self.piece(piece, work)

        async def there(worker_process: WorkerProcess) -> None:
            while not self._stops() and (piece := pieces.next()) is not None:
                await worker_process.carry(piece, work, self.tail, self._boundaries, self.progress)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(here())
                for worker_process in worker_processes:
                    group.create_task(there(worker_process))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def piece(self, span: Span, work: Work) -> None:
        """Fetch and commit one span, in as many batches as its rows need."""
        now_s = self.seams.clock.monotonic_s
        pending, writing = self._pending(work), None
        try:
            async with aclosing(self._chunks(span, work, self.progress.begin)) as chunks:
                async for chunk in chunks:
                    if not pending.fits(chunk):
                        writing, pending = await self._handed_over(pending, work, writing), self._pending(work)
                    pending.add(chunk)
                    self.progress.add(
                        blocks=len(chunk.span),
                        events=chunk.events,
                        restored=chunk.restored,
                        requests=self.chain.requests,
                        begun=True,
                    )
                    if pending.is_full(now_s(), self.chain.requests) or chunk.span.last == span.last:
                        writing, pending = await self._handed_over(pending, work, writing), self._pending(work)
                        if self._stops():
                            break
        except OverBudget:
            if pending.chunks:
                writing = await self._handed_over(pending, work, writing)
            raise
        finally:
            if writing is not None:
                await writing

    def _pending(self, work: Work) -> _Pending:
        """An empty batch, to be committed before it cost much."""
        enough = self.chain.requests + BATCH_REQUESTS if work.accounts else sys.maxsize
        return _Pending(self.seams.clock.monotonic_s(), enough)

    async def _handed_over(
        self, pending: _Pending, work: Work, writing: asyncio.Future[None] | None
    ) -> asyncio.Future[None]:
        """A batch that is being committed, once the one before it has been."""
        if writing is not None:
            await asyncio.shield(writing)
        last = await self._last(pending)
        return asyncio.ensure_future(asyncio.to_thread(self._commit, pending, last, work))

    async def _chunks(
        self, span: Span, work: Work, begun: Callable[[int], None] = lambda blocks: None
    ) -> AsyncGenerator[Collected, None]:
        """The span's chunks in order, linked to each other. The first goes alone: it learns what the node allows."""
        if work.accounts:
            async for chunk in self._of_accounts(span, work, begun):
                yield chunk
            return
        pieces = span.cut(self.chain.settings.span)
        flying: list[asyncio.Task[Collected]] = []
        before: Block | None = self._before(span)
        width = 1
        try:
            while True:
                while len(flying) < width and (piece := next(pieces, None)) is not None:
                    link = before if width == 1 else None
                    fetch = partial(self.chain.collect, piece, work.datasets, work.contracts, link, work.events)
                    flying.append(asyncio.create_task(checked(self.chain, piece, fetch)))
                    begun(len(piece))
                if not flying:
                    return
                chunk = await flying.pop(0)
                if before is not None and chunk.chain:
                    self._check_link(before, chunk.chain[0])
                before = chunk.last or (before if chunk.is_linked else None)
                width = self.chain.settings.concurrency
                yield chunk
        finally:
            for task in flying:
                task.cancel()
            await asyncio.gather(*flying, return_exceptions=True)

    async def _of_accounts(
        self, span: Span, work: Work, begun: Callable[[int], None]
    ) -> AsyncGenerator[Collected, None]:
        """What concerns accounts, in pieces as long as the chain gives them."""
        reader, left = having(self.chain, Capability.ACCOUNT_HISTORY), span
        while True:
            begun(0)
            fetch = partial(reader.collect_accounts, left, work.accounts, work.datasets, budget=self._budget)
            chunk = await checked(self.chain, left, fetch, whole=False)
            assert chunk.span.first == left.first, "a piece begins where it is asked to"
            yield chunk
            if chunk.span.last == span.last:
                return
            left = Span(chunk.span.last + 1, span.last)

    def _before(self, span: Span) -> Block | None:
        anchor = self.tail.anchor(self.chain.key)
        return anchor if anchor is not None and anchor.height == span.first - 1 else None

    def _check_link(self, before: Block, block: Block) -> None:
        if block.parent != before.hash:
            raise BadAnswer(
                self.chain.key, f"block {block.height} does not follow the block {before.height} that came before"
            )

    async def _last(self, pending: _Pending) -> Block | None:
        """The last block of a batch: what the tail will stand on. Where no header was read it is asked for; None where
        no height of the batch has a block."""
        return pending.chunks[-1].last or await newest_in(self.chain, pending.span)

    def _commit(self, pending: _Pending, last: Block | None, work: Work) -> None:
        """One batch: intent, a commit a table, closed. Runs in a thread of its own."""
        tables = self._new_only(pending.tables(), pending.span, work)
        if all(chunk.is_linked for chunk in pending.chunks):
            first = next((chunk.chain[0] for chunk in pending.chunks if chunk.chain), None)
            self._boundaries.check_boundary(pending.span, first, last)
        batch = self.tail.open_batch(
            self.chain.key,
            pending.span,
            pending.read(work),
            work.filters,
            after=self._last_batch(),
            worker_process=self.worker_process,
        )
        self._reopen(batch, pending)
        self._write(batch, tables)
        self._close(batch, pending, last, work)

    def _reopen(self, batch: Batch, pending: _Pending) -> None:
        """Have the histories of accounts made again of a batch that brings rows of datasets that were read before."""
        also = {name for chunk in pending.chunks for name in chunk.also}
        for name, history in HISTORIES.items():
            for dataset in also.intersection(history.datasets):
                for filter_ in batch.filters:
                    self.tail.remove_range(batch.chain, f"{name}/{dataset}", filter_, batch.span)

    def _close(self, batch: Batch, pending: _Pending, last: Block | None, work: Work) -> None:
        """Count a batch as indexed, and keep how accounts were read."""
        if work.accounts:
            chunks = pending.chunks
            batch = replace(batch, datasets=tuple(name for name in batch.datasets if name in pending.read(work)))
            if any(self.chain.datasets[name].by_account == "places" for name in work.datasets):
                self.tail.explained(batch.chain, work.accounts, batch.span)
            ways = {(a, *way) for a in work.accounts for chunk in chunks for way in chunk.ways.items()}
            self.tail.note(batch.chain, sorted(ways), [each for chunk in chunks for each in chunk.unexplained])
            # What no node gives is asked for once: lost where the process dies here, and then asked for once more.
            unread = [UNREAD + name for name in work.datasets if name not in batch.datasets]
            self.tail.add_ranges(batch.chain, [(name, each) for name in unread for each in work.filters], batch.span)
        self.tail.close_batch(batch, last)

    def _last_batch(self) -> int:
        return max(
            (self.lake.last(table, stream(self.chain.key, self.worker_process)) for table in TABLES.values()), default=0
        )

    def _write(self, batch: Batch, tables: Mapping[str, pa.Table]) -> None:
        for name, rows in sorted(tables.items()):
            if self.lake.append(
                TABLES[name], rows, stream=stream(batch.chain, batch.worker_process), batch=batch.number
            ):
                self.progress.rows += len(rows)

    def _new_only(self, tables: dict[str, pa.Table], span: Span, work: Work) -> dict[str, pa.Table]:
        """Without the rows that are stored already, for something else was indexed that has them too."""
        return without_stored(self.lake, self.tail, self.chain.key, self.chain.datasets, tables, span, work.filters)

    async def recover(self) -> int:
        """Carry out again what a killed run had begun; how many batches there were."""
        finish_rewind(self.lake, self.tail, self.chain.key)
        await asyncio.to_thread(finish_forgetting, self.lake, self.tail, self.chain.key)
        known = set(self.chain.datasets)
        batches = [batch for batch in self.tail.open_batches(self.chain.key) if set(batch.datasets) <= known]
        if batches:
            await self.chain.heads()  # histories of accounts are read in another way before it is known what is final
        for batch in batches:
            work = self._begun(batch)
            pending = self._pending(work)
            async with aclosing(self._chunks(batch.span, work)) as chunks:
                async for chunk in chunks:
                    pending.add(chunk)
            tables = await asyncio.to_thread(self._new_only, pending.tables(), batch.span, work)
            await asyncio.to_thread(self._reopen, batch, pending)
            await asyncio.to_thread(self._write, batch, tables)
            self._close(batch, pending, await self._last(pending), work)
        return len(batches)

    def _begun(self, batch: Batch) -> Work:
        """What a batch was begun for. Of accounts all is read again that is read together."""
        work = Work(Spans([batch.span]), batch.datasets, batch.filters)
        if work.accounts and work.datasets:
            return replace(work, datasets=group_of(self.chain.datasets, work.datasets[0]))
        return work
