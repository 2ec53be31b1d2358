"""Back-fill: read final blocks into the lake, each row exactly once, and resume after interruptions.

A span is fetched in chunks, several at a time. Finished chunks are combined until they fill one commit per table. A
batch is stored as an intent before the lake is written; each commit carries the batch's number; afterwards the batch is
closed and its span is indexed. A process that dies in between leaves an open batch, whose commits the next run repeats:
those that exist already change nothing. A number below the last one of its stream counts as done, so open batches are
finished before a new one is opened.

The lake gets no blocks at or above the tail's lowest block here: those come through the tail.
Histories of accounts are fetched in pieces whose length the chain chooses.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from chainfolio.blocks import Block, Span, Spans
from chainfolio.capabilities import Capability, require_capability
from chainfolio.chain_blocks import newest_block_in
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, OverBudget
from chainfolio.indexer.checked import read_checked
from chainfolio.indexer.duplicates import without_stored
from chainfolio.indexer.materialise import HISTORIES
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.rewind import finish_deletions, finish_rewind
from chainfolio.indexer.scopes import NO_END, UNREAD, group_of, missing_by_account
from chainfolio.indexer.shared_chain import WorkerRole, open_batches, unguarded
from chainfolio.indexer.work import Work, missing
from chainfolio.indexer.worker_pool import BoundaryCheck
from chainfolio.scopes import account_filter
from chainfolio.supervisor import in_thread, start_in_thread, wait_for_end
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.budgets import Budget
    from chainfolio.chain_results import SpanTables
    from chainfolio.chains import Chain
    from chainfolio.indexer.worker_pool import Boundaries, WorkerProcess
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Batch, Tail

BATCH_ROWS = 65_536
BATCH_BLOCKS = 20_000
# Limits what a killed run has to fetch again from a slow node.
BATCH_S = 30.0
# The same for accounts, which have few rows per request.
BATCH_REQUESTS = 200


@dataclass(slots=True)
class _PendingBatch:
    """Chunks that wait for their commit."""

    since_s: float
    max_requests: int  # the chain's request count at which the batch is full
    chunks: list[SpanTables] = field(default_factory=list)
    rows: int = 0

    def fits(self, chunk: SpanTables) -> bool:
        """Return True if a chunk has the datasets of the pending ones; nodes may lack some of accounts."""
        return not self.chunks or self.chunks[0].read_methods.keys() == chunk.read_methods.keys()

    def add(self, chunk: SpanTables) -> None:
        self.chunks.append(chunk)
        self.rows += sum(len(table) for table in chunk.tables.values())

    def read(self, work: Work) -> tuple[str, ...]:
        """Return the datasets that were read; of accounts, those that the nodes provided."""
        return tuple(
            name
            for name in work.datasets
            if not work.accounts or all(name in chunk.read_methods for chunk in self.chunks)
        )

    @property
    def span(self) -> Span:
        return Span(self.chunks[0].span.first, self.chunks[-1].span.last)

    def is_full(self, now_s: float, requests: int) -> bool:
        """Return True if rows, blocks, time or requests reach the limit of a batch."""
        return (
            self.rows >= BATCH_ROWS
            or len(self.span) >= BATCH_BLOCKS
            or now_s - self.since_s >= BATCH_S
            or requests >= self.max_requests
        )

    def tables(self) -> dict[str, pa.Table]:
        import pyarrow as pa

        names = sorted({name for chunk in self.chunks for name in chunk.tables})
        return {name: pa.concat_tables([c.tables[name] for c in self.chunks if name in c.tables]) for name in names}


def stream(chain: str, worker_process: int) -> str:
    """Return the name of the stream in which a worker process marks its commits."""
    return f"{chain}/collect/{worker_process}" if worker_process else f"{chain}/collect"


class _Pieces:
    """Splits a span for several processes, into pieces of about one batch, smaller towards the end."""

    def __init__(self, span: Span, chunk: int, takers: int, progress: Progress) -> None:
        self._next, self._last, self._chunk, self._takers = span.first, span.last, chunk, takers
        self._progress = progress
        self._blocks, self._events = progress.blocks, progress.events

    def next(self) -> Span | None:
        """Return the next piece of whole chunks, once; None at the end.

        Its length follows from the rows per block so far.
        """
        if self._next > self._last:
            return None
        remaining = self._last - self._next + 1
        blocks, events = self._progress.blocks - self._blocks, self._progress.events - self._events
        rows_limit = BATCH_ROWS * blocks // events if events else (BATCH_BLOCKS if blocks else 4 * self._chunk)
        even = -(-remaining // self._takers)
        size = max(1, round(min(rows_limit, even, BATCH_BLOCKS) / self._chunk)) * self._chunk
        piece = Span(self._next, min(self._next + size - 1, self._last))
        self._next = piece.last + 1
        return piece


@dataclass(frozen=True, slots=True)
class Limits:
    """Reasons to end early.

    `budget` limits the requests for accounts; `stops` returns True to end between two batches.
    """

    budget: Budget | None = None
    stops: Callable[[], bool] = lambda: False


NO_LIMITS: Final = Limits()


class Collector:
    """Fetches and commits missing spans of one chain.

    The caller holds the chain's lock, unless the role guards each commit.
    """

    def __init__(
        self,
        chain: Chain,
        lake: Lake,
        tail: Tail,
        environment: Environment,
        progress: Progress,
        *,
        role: WorkerRole | None = None,
        limits: Limits = NO_LIMITS,
    ) -> None:
        """Set up a collector.

        Args:
            role: None if no other process indexes the chain.
            limits: When it ends early.
        """
        self.chain, self.lake, self.tail, self.environment, self.progress = chain, lake, tail, environment, progress
        self.worker_process = role.number if role else 0
        self._boundaries: Boundaries = role.boundaries if role else BoundaryCheck(chain.key)
        self._guard = role.guard if role else unguarded
        self._budget, self._stops = limits.budget, limits.stops

    async def run(self, work: Sequence[Work], worker_processes: Sequence[WorkerProcess] = ()) -> None:
        """Finish interrupted work, then do all work, here and in the worker processes."""
        await self.recover()
        await self.index(work, worker_processes)

    async def index(self, work: Sequence[Work], worker_processes: Sequence[WorkerProcess] = ()) -> None:
        """Do all work, here and in the worker processes. After an error, committed batches stay.

        Raises:
            Locked: Another process has the chain's lock, or indexed the same blocks meanwhile.
        """
        for item in work:
            for span in item.spans:
                if not self._stops():
                    await self._index_missing(span, item, worker_processes)

    async def _index_missing(self, span: Span, item: Work, worker_processes: Sequence[WorkerProcess]) -> None:
        """Index the part of a span that is still missing: earlier batches or the tail may have some of it.

        Blocks from the lowest one of the tail on are left out.
        """
        tail_blocks = self.tail.blocks(self.chain.key)
        below = Span(0, tail_blocks[0].height - 1) if tail_blocks and tail_blocks[0].height else Span(0, NO_END)
        if tail_blocks and tail_blocks[0].height <= span.first:
            return
        if item.accounts:
            requested = dict.fromkeys(item.accounts, span)
            for spans, accounts in missing_by_account(
                self.tail, self.chain.key, item.datasets, requested, include_unread=True
            ):
                for part in spans & [below]:
                    await self.piece(part, Work(spans, item.datasets, tuple(map(account_filter, accounts))))
            return
        for incomplete in missing(self.tail, self.chain.key, span, item.datasets, item.contracts, item.events):
            for part in incomplete.spans & [below]:
                await self._side_by_side(part, incomplete, worker_processes)

    async def _side_by_side(self, span: Span, work: Work, worker_processes: Sequence[WorkerProcess]) -> None:
        """Index a span in pieces. Each free process, this one too, takes the next, so that all end together.

        A short span is indexed by this process alone. The first error ends all. A request to stop raises none.
        """
        if not worker_processes or len(span) <= 2 * self.chain.settings.span:
            await self.piece(span, work)
            return
        pieces = _Pieces(span, self.chain.settings.span, 1 + len(worker_processes), self.progress)

        async def work_here() -> None:
            while not self._stops() and (piece := pieces.next()) is not None:
                await self.piece(piece, work)

        async def work_in(process: WorkerProcess) -> None:
            while not self._stops() and (piece := pieces.next()) is not None:
                await process.run_piece(piece, work, self.tail, self._boundaries, self.progress)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(work_here())
                for process in worker_processes:
                    group.create_task(work_in(process))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def piece(self, span: Span, work: Work) -> None:
        """Fetch and commit one span, in as many batches as its rows need; end after one if it is to stop.

        Raises:
            OverBudget: The budget is used up; the chunks read so far are committed.
        """
        now_s = self.environment.clock.monotonic_s
        pending, writing = self._pending(work), None
        try:
            async with aclosing(self._chunks(span, work, self.progress.begin)) as chunks:
                async for chunk in chunks:
                    if not pending.fits(chunk):
                        writing, pending = await self._start_commit(pending, work, writing), self._pending(work)
                    pending.add(chunk)
                    self.progress.add(
                        blocks=len(chunk.span),
                        events=chunk.event_count,
                        restored=chunk.restored_count,
                        requests=self.chain.requests,
                        is_started=True,
                    )
                    if pending.is_full(now_s(), self.chain.requests) or chunk.span.last == span.last:
                        writing, pending = await self._start_commit(pending, work, writing), self._pending(work)
                        if self._stops():
                            break
        except OverBudget:
            if pending.chunks:
                writing = await self._start_commit(pending, work, writing)
            raise
        finally:
            if writing is not None:
                await wait_for_end(writing)

    def _pending(self, work: Work) -> _PendingBatch:
        """Return an empty batch with a limit of requests, which bounds what a killed run repeats."""
        max_requests = self.chain.requests + BATCH_REQUESTS if work.accounts else sys.maxsize
        return _PendingBatch(self.environment.clock.monotonic_s(), max_requests)

    async def _start_commit(
        self, pending: _PendingBatch, work: Work, writing: asyncio.Future[None] | None
    ) -> asyncio.Future[None]:
        """Wait for the previous commit, and start the commit of a batch in a thread."""
        if writing is not None:
            await asyncio.shield(writing)
        return start_in_thread(partial(self._commit, pending, await self._last(pending, work), work))

    async def _chunks(
        self, span: Span, work: Work, on_start: Callable[[int], None] = lambda blocks: None
    ) -> AsyncGenerator[SpanTables, None]:
        """Yield the span's chunks in order, linked to each other.

        For accounts, in pieces that the chain chooses. The first chunk is read alone, to learn the node's limits; then
        `concurrency` at once.

        Raises:
            SourceError: A chunk cannot be read, or does not follow the one before it.
        """
        if work.accounts:
            async for chunk in self._of_accounts(span, work, on_start):
                yield chunk
            return
        pieces = span.cut(self.chain.settings.span)
        flying: list[asyncio.Task[SpanTables]] = []
        before: Block | None = self._before(span)
        width = 1
        try:
            while True:
                while len(flying) < width and (piece := next(pieces, None)) is not None:
                    link = before if width == 1 else None
                    fetch = partial(self.chain.collect, piece, work.datasets, work.contracts, link, work.events)
                    flying.append(asyncio.create_task(read_checked(self.chain, piece, fetch)))
                    on_start(len(piece))
                if not flying:
                    return
                chunk = await flying.pop(0)
                if before is not None and chunk.blocks:
                    self._check_link(before, chunk.blocks[0])
                before = chunk.last or (before if chunk.is_linked else None)
                width = self.chain.settings.concurrency
                yield chunk
        finally:
            for task in flying:
                task.cancel()
            await asyncio.gather(*flying, return_exceptions=True)

    async def _of_accounts(
        self, span: Span, work: Work, on_start: Callable[[int], None]
    ) -> AsyncGenerator[SpanTables, None]:
        """Yield the rows of accounts, in pieces whose length the chain chooses."""
        reader, remaining = require_capability(self.chain, Capability.ACCOUNT_HISTORY), span
        while True:
            on_start(0)
            fetch = partial(reader.collect_accounts, remaining, work.accounts, work.datasets, budget=self._budget)
            chunk = await read_checked(self.chain, remaining, fetch, is_complete=False)
            assert chunk.span.first == remaining.first, "a piece begins where it is asked to"
            yield chunk
            if chunk.span.last == span.last:
                return
            remaining = Span(chunk.span.last + 1, span.last)

    def _before(self, span: Span) -> Block | None:
        anchor = self.tail.anchor(self.chain.key)
        return anchor if anchor is not None and anchor.height == span.first - 1 else None

    def _check_link(self, before: Block, block: Block) -> None:
        if block.parent != before.hash:
            raise BadAnswer(
                self.chain.key, f"block {block.height} does not follow the block {before.height} that came before"
            )

    async def _last(self, pending: _PendingBatch, work: Work) -> Block | None:
        """Return the last block of a batch, on which the tail will build; None if no height has a block."""
        is_unread = work.accounts and not pending.chunks[-1].read_methods  # nodes may have lost the blocks, too
        return pending.chunks[-1].last or (None if is_unread else await newest_block_in(self.chain, pending.span))

    def _commit(self, pending: _PendingBatch, last: Block | None, work: Work) -> None:
        """Commit one batch: intent, one commit per table, close. Runs in a thread."""
        with self._guard(pending.span, pending.read(work), work.filters):
            self._commit_guarded(pending, last, work)

    def _commit_guarded(self, pending: _PendingBatch, last: Block | None, work: Work) -> None:
        """Write the new rows of a batch, after a check of its links; the caller holds the guard."""
        tables = self._new_only(pending.tables(), pending.span, work)
        if all(chunk.is_linked for chunk in pending.chunks):
            first = next((chunk.blocks[0] for chunk in pending.chunks if chunk.blocks), None)
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

    def _reopen(self, batch: Batch, pending: _PendingBatch) -> None:
        """Remove derived ranges of a batch that has new rows of datasets that were read before.

        The histories are then made again.
        """
        also = {name for chunk in pending.chunks for name in chunk.extra_datasets}
        for name, history in HISTORIES.items():
            for dataset in also.intersection(history.datasets):
                for filter_ in batch.filters:
                    self.tail.remove_range(batch.chain, f"{name}/{dataset}", filter_, batch.span)

    def _close(self, batch: Batch, pending: _PendingBatch, last: Block | None, work: Work) -> None:
        """Add the ranges of a batch, store how accounts were read, and close the batch."""
        if work.accounts:
            chunks = pending.chunks
            batch = replace(batch, datasets=tuple(name for name in batch.datasets if name in pending.read(work)))
            if any(self.chain.datasets[name].by_account == "places" for name in work.datasets):
                self.tail.drop_unexplained(batch.chain, work.accounts, batch.span)
            notes = {(a, *note) for a in work.accounts for chunk in chunks for note in chunk.read_methods.items()}
            self.tail.add_history_notes(
                batch.chain, sorted(notes), [each for chunk in chunks for each in chunk.unexplained]
            )
            # Missing datasets are requested once, or again if the process dies here.
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
        """Return the rows that are not stored yet from another dataset or filter."""
        return without_stored(self.lake, self.tail, self.chain.key, self.chain.datasets, tables, span, work.filters)

    async def recover(self) -> int:
        """Finish rewinds and deletions, then read open batches of a killed run again; return their number."""
        finish_rewind(self.lake, self.tail, self.chain.key)
        await in_thread(partial(finish_deletions, self.lake, self.tail, self.chain.key))
        batches = open_batches(self.tail, self.chain)
        if batches:
            await self.chain.heads()  # reading histories of accounts depends on the final height
        for batch in batches:
            work = self._work_of(batch)
            pending = self._pending(work)
            async with aclosing(self._chunks(batch.span, work)) as chunks:
                async for chunk in chunks:
                    pending.add(chunk)
            last = await self._last(pending, work)
            await in_thread(partial(self._rewrite, batch, pending, last, work))
        return len(batches)

    def _rewrite(self, batch: Batch, pending: _PendingBatch, last: Block | None, work: Work) -> None:
        """Write and close an open batch that was read again. Runs in a thread."""
        tables = self._new_only(pending.tables(), batch.span, work)
        self._reopen(batch, pending)
        self._write(batch, tables)
        self._close(batch, pending, last, work)

    def _work_of(self, batch: Batch) -> Work:
        """Return the work of an open batch. For accounts, it includes all datasets that are read together."""
        work = Work(Spans([batch.span]), batch.datasets, batch.filters)
        if work.accounts and work.datasets:
            return replace(work, datasets=group_of(self.chain.datasets, work.datasets[0]))
        return work
