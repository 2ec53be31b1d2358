"""Back-fill: final blocks straight into the lake, each row exactly once, from wherever an earlier run stopped.

A span is fetched in chunks, several on their way at once; finished chunks are put together until there is enough for one
commit a table. Before the lake is touched the batch is written down as an intent; each commit carries the batch's number;
afterwards the batch is closed and its span counts as covered. A process that dies in between leaves an open batch, and the
next run makes its commits again: those that had happened change nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chainfolio.blocks import Block, Span, Spans
from chainfolio.errors import BadAnswer, BadRequest, DeepReorg
from chainfolio.seams import Seams
from chainfolio.tables import TABLES
from indexer.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa

    from adapters.evm.chain import EvmChain, Fetched
    from storage.lake import Lake
    from storage.tail import Batch, Tail

BATCH_ROWS = 65_536
BATCH_BLOCKS = 20_000
EVERYTHING = ("",)


@dataclass(frozen=True, slots=True)
class Work:
    """Datasets of some contracts (`""`: of all) that are missing in some spans."""

    spans: Spans
    datasets: tuple[str, ...]
    filters: tuple[str, ...] = EVERYTHING

    @property
    def contracts(self) -> tuple[str, ...]:
        """The contracts to name to the node; none for everything."""
        return () if self.filters == EVERYTHING else self.filters


@dataclass(slots=True)
class _Pending:
    """Chunks that wait for their commit."""

    chunks: list[Fetched] = field(default_factory=list)
    rows: int = 0

    def add(self, chunk: Fetched) -> None:
        self.chunks.append(chunk)
        self.rows += sum(len(table) for table in chunk.tables.values())

    @property
    def span(self) -> Span:
        return Span(self.chunks[0].span.first, self.chunks[-1].span.last)

    @property
    def is_full(self) -> bool:
        return self.rows >= BATCH_ROWS or len(self.span) >= BATCH_BLOCKS

    def tables(self) -> dict[str, pa.Table]:
        import pyarrow as pa

        names = sorted({name for chunk in self.chunks for name in chunk.tables})
        return {name: pa.concat_tables([c.tables[name] for c in self.chunks if name in c.tables]) for name in names}


def missing(tail: Tail, chain: str, span: Span, datasets: Sequence[str], contracts: Sequence[str]) -> list[Work]:
    """What is still to be fetched of a span, equal needs together; a contract is covered by everything, too."""
    needs: dict[tuple[Spans, str], list[str]] = {}
    for dataset in datasets:
        whole = tail.cover(chain, dataset, "")
        by_contract = contracts and dataset in ("transfers", "approvals")
        for name in contracts if by_contract else EVERYTHING:
            left = Spans([span]) - whole - (tail.cover(chain, dataset, name) if name else ())
            if left:
                needs.setdefault((left, name), []).append(dataset)
    grouped: dict[tuple[Spans, tuple[str, ...], bool], list[str]] = {}
    for (left, name), names in needs.items():
        grouped.setdefault((left, tuple(names), bool(name)), []).append(name)
    return [Work(left, names, tuple(sorted(filters))) for (left, names, _), filters in grouped.items()]


class Collector:
    """Fetches and commits what is missing of one chain. The caller holds the chain's lock."""

    def __init__(self, chain: EvmChain, lake: Lake, tail: Tail, seams: Seams, progress: Progress) -> None:
        self.chain, self.lake, self.tail, self.seams, self.progress = chain, lake, tail, seams, progress
        self._stream = f"{chain.key}/collect"

    async def run(self, work: Sequence[Work]) -> None:
        """Carry out all work. Whatever was committed stays; an error leaves the rest for the next run."""
        for item in work:
            for span in item.spans:
                await self._span(span, item)

    async def _span(self, span: Span, work: Work) -> None:
        pending, writing = _Pending(), None
        try:
            async for chunk in self._chunks(span, work):
                pending.add(chunk)
                self.progress.add(
                    blocks=len(chunk.span), events=chunk.events, restored=chunk.restored, requests=self.chain.requests
                )
                if pending.is_full or chunk.span.last == span.last:
                    if writing is not None:
                        await writing
                    full, pending = pending, _Pending()
                    writing = asyncio.ensure_future(asyncio.to_thread(self._commit, full, work))
        finally:
            if writing is not None:
                await writing

    async def _chunks(self, span: Span, work: Work) -> AsyncIterator[Fetched]:
        """The span's chunks in order, linked to each other. The first goes alone: it learns what the node allows."""
        pieces = span.cut(self.chain.settings.span)
        flying: list[asyncio.Task[Fetched]] = []
        before: Block | None = self._before(span)
        width = 1
        try:
            while True:
                while len(flying) < width and (piece := next(pieces, None)) is not None:
                    link = before if width == 1 else None
                    fetch = self.chain.collect(piece, work.datasets, work.contracts, link)
                    flying.append(asyncio.create_task(fetch))
                if not flying:
                    return
                chunk = await flying.pop(0)
                if before is not None and chunk.chain and chunk.chain[0].height == before.height + 1:
                    self._check_link(before, chunk.chain[0])
                before = chunk.last
                width = self.chain.settings.concurrency
                yield chunk
        finally:
            for task in flying:
                task.cancel()

    def _before(self, span: Span) -> Block | None:
        anchor = self.tail.anchor(self.chain.key)
        return anchor if anchor is not None and anchor.height == span.first - 1 else None

    def _check_link(self, before: Block, block: Block) -> None:
        if block.parent != before.hash:
            raise BadAnswer(self.chain.key, f"block {block.height} does not follow the block {before.height} that came before")

    def _commit(self, pending: _Pending, work: Work) -> None:
        """One batch: intent, a commit a table, closed. Runs in a thread of its own."""
        tables = self._unknown_only(pending.tables(), pending.span, work)
        batch = self.tail.open_batch(self.chain.key, pending.span, work.datasets, work.filters, after=self._last_batch())
        self._write(batch, tables)
        last = pending.chunks[-1].last
        anchor = self.tail.anchor(self.chain.key)
        moves = last is not None and (anchor is None or last.height > anchor.height)
        self.tail.close_batch(batch, last if moves and work.filters == EVERYTHING else None)

    def _last_batch(self) -> int:
        return max((self.lake.last(table, self._stream) for table in TABLES.values()), default=0)

    def _write(self, batch: Batch, tables: Mapping[str, pa.Table]) -> None:
        for name, rows in sorted(tables.items()):
            if self.lake.append(TABLES[name], rows, stream=self._stream, batch=batch.number):
                self.progress.rows += len(rows)

    def _unknown_only(self, tables: dict[str, pa.Table], span: Span, work: Work) -> dict[str, pa.Table]:
        """Without rows of contracts that were indexed on their own before everything was asked for."""
        if work.filters != EVERYTHING:
            return tables
        import pyarrow.compute as pc

        for dataset in work.datasets:
            for contract in self.tail.cover_filters(self.chain.key, dataset):
                known = self.tail.cover(self.chain.key, dataset, contract) & [span] if contract else Spans()
                for name, column in ((self.chain.datasets[dataset], "token"), ("logs", "address")):
                    for part in known if name in tables else ():
                        rows = tables[name]
                        inside = pc.and_(pc.greater_equal(rows["height"], part.first), pc.less_equal(rows["height"], part.last))
                        mine = pc.and_(inside, pc.fill_null(pc.equal(rows[column], contract), False))
                        tables[name] = rows.filter(pc.invert(mine))
        return tables

    async def recover(self) -> int:
        """Carry out again what a killed run had begun; how many batches there were."""
        batches = [batch for batch in self.tail.open_batches(self.chain.key) if set(batch.datasets) <= set(self.chain.datasets)]
        for batch in batches:
            work = Work(Spans([batch.span]), batch.datasets, batch.filters)
            pending = _Pending()
            async for chunk in self._chunks(batch.span, work):
                pending.add(chunk)
            tables = self._unknown_only(pending.tables(), batch.span, work)
            await asyncio.to_thread(self._write, batch, tables)
            self.tail.close_batch(batch, pending.chunks[-1].last if work.filters == EVERYTHING else None)
        return len(batches)


async def check_anchor(chain: EvmChain, tail: Tail) -> None:
    """The last final block we keep must still be on the node's chain: DeepReorg where it is not."""
    anchor = tail.anchor(chain.key)
    if anchor is None:
        return
    theirs = await chain.block(anchor.height)
    if theirs.hash != anchor.hash:
        raise DeepReorg(chain.key, anchor.height, anchor.hash, theirs.hash)


def check_span(chain: str, first: int, last: int, finalized: int) -> Span:
    """The span a user asked for, within what is final."""
    if first > finalized:
        raise BadRequest("from", f"block {first} is not final yet on {chain}: the newest final block is {finalized}")
    if first > last:
        raise BadRequest("to", f"{last} is before {first}")
    return Span(first, min(last, finalized))
