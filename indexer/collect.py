"""Back-fill: final blocks straight into the lake, each row exactly once, from wherever an earlier run stopped.

A span is fetched in chunks, several on their way at once; finished chunks are put together until there is enough for
one commit a table. Before the lake is touched the batch is written down as an intent; each commit carries the batch's
number; afterwards the batch is closed and its span counts as covered. A process that dies in between leaves an open
batch, and the next run makes its commits again: those that had happened change nothing. The numbers of one stream rise,
and a number below the last one counts as done: so an open batch is carried out before any new one is begun.

Nothing is written to the lake at or above the lowest block of the tail: from there on, rows come by way of the tail.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chainfolio import kinds
from chainfolio.blocks import Block, Span, Spans
from chainfolio.chains import hash_at, newest_in
from chainfolio.errors import BadAnswer, BadRequest, DeepReorg
from chainfolio.seams import Seams
from chainfolio.tables import TABLES
from indexer.consistency import newest_batch
from indexer.progress import Progress
from indexer.worker_pool import BoundaryCheck

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.chains import Chain, Collected
    from indexer.worker_pool import Boundaries, WorkerProcess
    from storage.lake import Lake
    from storage.tail import Batch, Tail

BATCH_ROWS = 65_536
BATCH_BLOCKS = 20_000
# A killed run has no more than this to fetch again, however slow the node is.
BATCH_S = 30.0
EVERYTHING = ("",)
REWIND = ("rewind",)
REPAIR = ("repair",)
NO_END = 2**62


@dataclass(frozen=True, slots=True)
class Work:
    """Datasets of some contracts (`""`: of all), or some events, that are missing in some spans."""

    spans: Spans
    datasets: tuple[str, ...]
    filters: tuple[str, ...] = EVERYTHING

    @property
    def contracts(self) -> tuple[str, ...]:
        """The contracts to name to the node; none for everything."""
        return () if self.filters == EVERYTHING or self.events else self.filters

    @property
    def events(self) -> tuple[str, ...]:
        """The filters of a dataset that is indexed by events, which is always on its own."""
        return self.filters if filtered_by(self.datasets[0]) == "event" else ()


@dataclass(slots=True)
class _Pending:
    """Chunks that wait for their commit."""

    since_s: float
    chunks: list[Collected] = field(default_factory=list)
    rows: int = 0

    def add(self, chunk: Collected) -> None:
        self.chunks.append(chunk)
        self.rows += sum(len(table) for table in chunk.tables.values())

    @property
    def span(self) -> Span:
        return Span(self.chunks[0].span.first, self.chunks[-1].span.last)

    def is_full(self, now_s: float) -> bool:
        return self.rows >= BATCH_ROWS or len(self.span) >= BATCH_BLOCKS or now_s - self.since_s >= BATCH_S

    def tables(self) -> dict[str, pa.Table]:
        import pyarrow as pa

        names = sorted({name for chunk in self.chunks for name in chunk.tables})
        return {name: pa.concat_tables([c.tables[name] for c in self.chunks if name in c.tables]) for name in names}


def filters(dataset: str, contracts: Sequence[str], events: Sequence[str]) -> Sequence[str]:
    """Of what a dataset is wanted; `""` stands for all."""
    by = filtered_by(dataset)
    if by == "event":
        return events
    return contracts if contracts and by == "contract" else EVERYTHING


def filtered_by(dataset: str) -> str:
    """By what a dataset can be asked for: contracts, events, or nothing: of the others there is only everything."""
    known = kinds.datasets().get(dataset)
    return known.filtered_by if known else ""


def missing(
    tail: Tail, chain: str, span: Span, datasets: Sequence[str], contracts: Sequence[str], events: Sequence[str] = ()
) -> list[Work]:
    """What is still to be fetched of a span, equal needs together; a contract is covered by everything, too.

    `events` are the filters that the dataset of this name is wanted of.
    """
    needs: dict[tuple[Spans, str], list[str]] = {}
    for dataset in dict.fromkeys(datasets):
        whole = tail.indexed_ranges(chain, dataset, "")
        for name in dict.fromkeys(filters(dataset, contracts, events)):
            left = Spans([span]) - whole - (tail.indexed_ranges(chain, dataset, name) if name else ())
            if left:
                needs.setdefault((left, name), []).append(dataset)
    grouped: dict[tuple[Spans, tuple[str, ...], bool], list[str]] = {}
    for (left, name), names in needs.items():
        grouped.setdefault((left, tuple(names), bool(name)), []).append(name)
    return [Work(left, names, tuple(sorted(wanted))) for (left, names, _), wanted in grouped.items()]


def heights(work: Sequence[Work]) -> int:
    """How many blocks some work is about: one that several parts of it read is still one block."""
    return len(Spans(span for item in work for span in item.spans))


def stream(chain: str, worker_process: int) -> str:
    """Under which name a lane marks its commits: the numbers of one stream only rise."""
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
    ) -> None:
        self.chain, self.lake, self.tail, self.seams, self.progress = chain, lake, tail, seams, progress
        self.worker_process, self._boundaries = worker_process, ends or BoundaryCheck(chain.key)

    async def run(self, work: Sequence[Work], worker_processes: Sequence[WorkerProcess] = ()) -> None:
        """Carry out all work, here and in the lanes given. What was committed stays; an error leaves the rest."""
        await self.recover()
        for item in work:
            for span in item.spans:
                await self._rest(span, item, worker_processes)

    async def _rest(self, span: Span, item: Work, worker_processes: Sequence[WorkerProcess]) -> None:
        """What is still missing of a span by now: an earlier batch, or the tail, may have got a part of it."""
        kept = self.tail.blocks(self.chain.key)
        below = Span(0, kept[0].height - 1) if kept and kept[0].height else Span(0, NO_END)
        if kept and kept[0].height <= span.first:
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
            while (piece := pieces.next()) is not None:
                await self.piece(piece, work)

        async def there(worker_process: WorkerProcess) -> None:
            while (piece := pieces.next()) is not None:
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
        pending, writing = _Pending(now_s()), None
        try:
            async with aclosing(self._chunks(span, work, self.progress.begin)) as chunks:
                async for chunk in chunks:
                    pending.add(chunk)
                    self.progress.add(
                        blocks=len(chunk.span),
                        events=chunk.events,
                        restored=chunk.restored,
                        requests=self.chain.requests,
                        begun=True,
                    )
                    if pending.is_full(now_s()) or chunk.span.last == span.last:
                        if writing is not None:
                            await asyncio.shield(writing)
                        full, pending = pending, _Pending(now_s())
                        last = await self._last(full)
                        writing = asyncio.ensure_future(asyncio.to_thread(self._commit, full, last, work))
        finally:
            if writing is not None:
                await writing

    async def _chunks(
        self, span: Span, work: Work, begun: Callable[[int], None] = lambda blocks: None
    ) -> AsyncGenerator[Collected, None]:
        """The span's chunks in order, linked to each other. The first goes alone: it learns what the node allows."""
        pieces = span.cut(self.chain.settings.span)
        flying: list[asyncio.Task[Collected]] = []
        before: Block | None = self._before(span)
        width = 1
        try:
            while True:
                while len(flying) < width and (piece := next(pieces, None)) is not None:
                    link = before if width == 1 else None
                    fetch = self.chain.collect(piece, work.datasets, work.contracts, link, work.events)
                    flying.append(asyncio.create_task(fetch))
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
        tables = self._unknown_only(pending.tables(), pending.span, work)
        if all(chunk.is_linked for chunk in pending.chunks):
            first = next((chunk.chain[0] for chunk in pending.chunks if chunk.chain), None)
            self._boundaries.check_boundary(pending.span, first, last)
        batch = self.tail.open_batch(
            self.chain.key,
            pending.span,
            work.datasets,
            work.filters,
            after=self._last_batch(),
            worker_process=self.worker_process,
        )
        self._write(batch, tables)
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

    def _unknown_only(self, tables: dict[str, pa.Table], span: Span, work: Work) -> dict[str, pa.Table]:
        """Without rows of contracts that were indexed on their own before everything was asked for."""
        if work.filters != EVERYTHING:
            return tables
        for dataset in work.datasets:
            for contract in self.tail.indexed_filters(self.chain.key, dataset):
                known = self.tail.indexed_ranges(self.chain.key, dataset, contract) & [span] if contract else Spans()
                for part in known:
                    tables = self.chain.datasets[dataset].without(tables, contract, part)
        return tables

    async def recover(self) -> int:
        """Carry out again what a killed run had begun; how many batches there were."""
        finish_rewind(self.lake, self.tail, self.chain.key)
        await asyncio.to_thread(finish_forgetting, self.lake, self.tail, self.chain.key)
        known = set(self.chain.datasets)
        batches = [batch for batch in self.tail.open_batches(self.chain.key) if set(batch.datasets) <= known]
        for batch in batches:
            work = Work(Spans([batch.span]), batch.datasets, batch.filters)
            pending = _Pending(0)
            async with aclosing(self._chunks(batch.span, work)) as chunks:
                async for chunk in chunks:
                    pending.add(chunk)
            tables = self._unknown_only(pending.tables(), batch.span, work)
            await asyncio.to_thread(self._write, batch, tables)
            self.tail.close_batch(batch, await self._last(pending))
        return len(batches)


def rewind(lake: Lake, tail: Tail, chain: str, height: int) -> int:
    """Forget everything from a height on, or from lower where a killed run left a batch half-way; from which height.

    The caller holds the chain's lock. It is written down before it is begun: a killed one is finished by the next run.
    """
    first = min([height, *(batch.span.first for batch in tail.open_batches(chain))])
    tail.open_batch(chain, Span(first, NO_END), REWIND, after=newest_batch(lake, chain))
    finish_rewind(lake, tail, chain)
    return first


def finish_rewind(lake: Lake, tail: Tail, chain: str) -> None:
    """Carry out a rewind that was begun; nothing where none was."""
    begun = [batch.span.first for batch in tail.open_batches(chain) if batch.datasets == REWIND]
    if begun:
        lake.forget(chain, Span(min(begun), NO_END))
        tail.rewind(chain, min(begun) - 1, None)


def finish_forgetting(lake: Lake, tail: Tail, chain: str) -> None:
    """Forget the rows of repairs that were begun: those of all tables that follow the cover, but for the histories that
    the intent spares, for they are damaged too and made again as a whole."""
    for batch in tail.open_batches(chain):
        if batch.datasets == REPAIR:
            spared = {*batch.filters, "balances", "allowances", "tokens"}
            lake.forget(chain, batch.span, [table for table in TABLES.values() if table.name not in spared])
            tail.forget(batch)


async def check_anchor(chain: Chain, tail: Tail) -> None:
    """The last final block we keep must still be on the node's chain: DeepReorg where it is not."""
    anchor = tail.anchor(chain.key)
    if anchor is None:
        return
    theirs = await hash_at(chain, anchor.height)
    if theirs != anchor.hash:
        raise DeepReorg(chain.key, anchor.height, anchor.hash, theirs)


def check_span(chain: str, first: int, last: int, finalized: int) -> Span:
    """The span a user asked for, within what is final."""
    if first < 0:
        raise BadRequest("from", "a block height is at least 0")
    if first > finalized:
        raise BadRequest("from", f"block {first} is not final yet on {chain}: the newest final block is {finalized}")
    if first > last:
        raise BadRequest("to", f"{last} is before {first}")
    return Span(first, min(last, finalized))
