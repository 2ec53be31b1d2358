"""Follow the head: new blocks into the tail, reorganised ones out of it, final ones into the lake.

The tail holds every block that may still go. A new block must name the tail's top as its parent; where it does not, the
tail is rolled back to the last block both chains share, and the new branch is read. Blocks that became final move to
the lake some hundred at a time, by an intent and a mark as in a back-fill, under a stream of their own. A chain whose
final past has changed halts, and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from chainfolio.blocks import Block, Span, Spans
from chainfolio.chain_settings import EVERYTHING
from chainfolio.chains import Announces, Capability, hash_at, having
from chainfolio.errors import DeepReorg, NodeBehind, Reorged, SourceError, Unavailable
from chainfolio.scopes import account_filter
from chainfolio.seams import Seams
from chainfolio.tables import LOGS, TABLES
from indexer import arrow_ipc
from indexer.checked import checked
from indexer.doubles import merged
from indexer.rewind import check_anchor, finish_rewind
from indexer.scopes import UNREAD, Scope, can_be_read, groups
from indexer.work import Work, filters, missing, missing_of
from storage.tail import TailBlock

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.chains import Chain, Collected, Heads
    from storage.lake import Lake
    from storage.tail import Batch, Tail

CHUNK = 50
# Final blocks move when there are so many of them, or when one has waited so long: a commit a block would be many.
FINALISE_BLOCKS = 200
FINALISE_S = 60.0
# And never more than this in one commit.
MOVE_BLOCKS = 1000
# A node whose head lies below ours is behind, until it has said so for this long.
BEHIND_S = 30.0
# The batches of the follower, and the heights that have gone from the tail to the lake.
MOVED = "tail"
NOBODY = Scope()


@dataclass(slots=True)
class Status:
    """Where following stands. `halted` says why it stopped, `problem` what it is waiting out; `recovered_reorgs` counts
    how often its final past changed and was indexed again."""

    head: int = 0
    indexed: int = 0
    finalized: int = 0
    reorgs: int = 0
    recovered_reorgs: int = 0
    halted: str = ""
    problem: str = ""
    updated_us: int = 0

    @property
    def lag(self) -> int:
        """Blocks between the node's head and ours."""
        return max(0, self.head - self.indexed)


class Follower:
    """Keeps one chain's tail at its head. The caller holds the chain's lock.

    `events` are the filters that the dataset of this name is wanted of. `scope` are the accounts whose histories are
    wanted, whatever the datasets are.
    """

    def __init__(
        self,
        chain: Chain,
        lake: Lake,
        tail: Tail,
        seams: Seams,
        datasets: Sequence[str],
        events: Sequence[str] = (),
        scope: Scope = NOBODY,
    ) -> None:
        self.chain, self.lake, self.tail, self.seams = chain, lake, tail, seams
        self.datasets, self.events, self.scope = tuple(datasets), tuple(events), scope
        self.status = Status()
        self._stream = f"{chain.key}/follow"
        self._waits_since_s: float | None = None
        self._behind_since_s: float | None = None

    async def run(
        self, progressed: Callable[[], None] = lambda: None, stops: Callable[[], bool] = lambda: False
    ) -> None:
        """Until cancelled, until it `stops`, or until the chain's final past has changed; `progressed` hears of every
        step done."""
        while not self.status.halted and not stops():
            try:
                await self.step()
                self.status.problem = ""
                progressed()
            except DeepReorg as error:
                self.status.halted = str(error)
            except SourceError as error:
                self.status.problem = str(error)
            await self._pause()

    async def _pause(self) -> None:
        """Until something is new, as far as the chain announces it, or as long as a block takes."""
        if isinstance(self.chain, Announces):
            await self.chain.announced(self.pause_s)
        else:
            await self.seams.clock.sleep(self.pause_s)

    @property
    def pause_s(self) -> float:
        """Seconds between two steps: about as long as a block takes."""
        return max(0.2, min(self.chain.info.block_time_ms / 1000, 12.0))

    async def step(self) -> None:
        """Once: see the head, undo what was reorganised, add what is new, move what became final."""
        heads = await self._ready()
        await self._extend(heads)
        await self._finalise(heads.finalized)
        self._note()

    async def settle(self) -> None:
        """Put the tail in order, without reading ahead: undo what was reorganised, move all that is final.

        For whoever is about to write to the lake himself: what is final by now is there afterwards, not in the tail.
        """
        heads = await self._ready()
        await asyncio.to_thread(self.finalise, heads.finalized)
        self._note()

    async def _ready(self) -> Heads:
        await asyncio.to_thread(self.recover)
        heads = await self.chain.heads()
        self.status.head, self.status.finalized = heads.latest.height, heads.finalized
        await self._undo(heads)
        return heads

    def _note(self) -> None:
        top = self._top()
        self.status.indexed = top.height if top else 0
        self.status.updated_us = self.seams.clock.now_us()

    def _top(self) -> Block | None:
        return self.tail.top(self.chain.key) or self.tail.anchor(self.chain.key)

    # --- reorganisations ---------------------------------------------------------------------------------------------

    async def _undo(self, heads: Heads) -> None:
        """Roll the tail back to the last block that is still on the node's chain."""
        kept = self.tail.blocks(self.chain.key)
        if not kept:
            await check_anchor(self.chain, self.tail)
            return
        if await self._is_behind(kept, heads):
            return
        if await self._is_shared(kept[-1], heads):
            return
        low, high = -1, len(kept) - 1  # kept[low] is shared (or the anchor is), kept[high] is not
        while high - low > 1:
            middle = (low + high) // 2
            if await self._is_shared(kept[middle], heads):
                low = middle
            else:
                high = middle
        if low < 0:
            await check_anchor(self.chain, self.tail)
        self.status.reorgs += 1
        self.tail.rollback(self.chain.key, kept[low].height if low >= 0 else kept[0].height - 1)

    async def _is_behind(self, kept: Sequence[Block], heads: Heads) -> bool:
        """Whether the node's head is a block of ours below our top: late news, and no reorganisation until it lasts."""
        latest, anchor = heads.latest, self.tail.anchor(self.chain.key)
        if anchor is not None and latest.height < anchor.height:
            raise NodeBehind(self.chain.key, f"the node is at block {latest.height}, block {anchor.height} is final")
        below = [*([anchor] if anchor is not None else []), *kept[:-1]]
        if not any(block.height == latest.height and block.hash == latest.hash for block in below):
            self._behind_since_s = None
            return False
        now_s = self.seams.clock.monotonic_s()
        if self._behind_since_s is None:
            self._behind_since_s = now_s
        return now_s - self._behind_since_s < BEHIND_S

    async def _is_shared(self, block: Block, heads: Heads) -> bool:
        if block.height > heads.latest.height:
            return False
        try:
            return await hash_at(self.chain, block.height) == block.hash
        except NodeBehind:
            return False

    # --- new blocks --------------------------------------------------------------------------------------------------

    async def _extend(self, heads: Heads) -> None:
        """Read the blocks above the top. A reorg in the middle of it ends the step; the next one undoes it."""
        assert not self._is_half_filled(), "a back-fill that was begun is made good before the head is followed"
        top = self._top()
        first = top.height + 1 if top else self._start()
        if first > heads.latest.height:
            return
        for span in Span(first, heads.latest.height).cut(CHUNK):
            try:
                contracts = self.chain.settings.chosen
                fetch = partial(self.chain.collect, span, self._wanted(), contracts, top, self.events)
                chunk = await checked(self.chain, span, fetch)
            except Reorged as error:
                raise Unavailable(error.source, f"the chain changed while block {error.height} was read") from error
            if not chunk.is_linked or (top is not None and chunk.chain and chunk.chain[0].parent != top.hash):
                raise Unavailable(self.chain.key, "the chain changed while it was read")
            ranges = await self._add_accounts(chunk, top)
            await asyncio.to_thread(self._put, chunk, ranges)
            top = chunk.last or top
            await self._finalise(heads.finalized)

    async def _add_accounts(self, chunk: Collected, top: Block | None) -> list[tuple[str, str]]:
        """Add to a chunk what concerns the accounts of the scope; the datasets and filters that are indexed by it."""
        accounts, ranges = self.scope.at(chunk.span), list[tuple[str, str]]()
        if not accounts or not can_be_read(self.chain):
            return ranges
        whole = {name for name, filter_ in self._filters() if not filter_}
        for group in groups(self.chain.datasets):
            if not whole.issuperset(group):
                ways = await self._add_group(chunk, top, accounts, group)
                read = [name if name in ways else UNREAD + name for name in group]
                ranges += [(name, account_filter(account)) for name in read for account in accounts]
        return ranges

    async def _add_group(
        self, chunk: Collected, top: Block | None, accounts: Sequence[str], group: Sequence[str]
    ) -> set[str]:
        """Add the rows of the datasets that are read together; those that the nodes gave at all heights."""
        reader, left, given = having(self.chain, Capability.ACCOUNT_HISTORY), chunk.span, set(group)
        hashes = {block.height: block.hash for block in chunk.chain}
        while True:
            fetch = partial(reader.collect_accounts, left, accounts, group, top)
            part = await checked(self.chain, left, fetch, whole=False)
            if any(hashes.get(block.height) != block.hash for block in part.chain):
                raise Unavailable(self.chain.key, "the chain changed while it was read")
            for name, rows in part.tables.items():
                if name in chunk.tables:
                    rows = merged(TABLES[name], chunk.tables[name], rows)
                chunk.tables[name] = rows
            given &= part.ways.keys()
            ways = [(account, *way) for account in accounts for way in part.ways.items()]
            await asyncio.to_thread(self.tail.note, self.chain.key, ways, part.unexplained)
            if part.span.last == chunk.span.last:
                return given
            left, top = Span(part.span.last + 1, chunk.span.last), part.last or top

    def _is_half_filled(self) -> bool:
        known = set(self.chain.datasets)
        return any(set(batch.datasets) <= known for batch in self.tail.open_batches(self.chain.key))

    def _start(self) -> int:
        """Where to begin without any block to stand on: above all that was indexed."""
        indexed = [span.last + 1 for name, filter_ in self._filters() for span in self._indexed_ranges(name, filter_)]
        begin, firsts = self.chain.settings.start_block, [each.first for each in self.scope.watches]
        return max([begin if self.chain.settings.index == EVERYTHING else min(firsts, default=begin), *indexed])

    def _indexed_ranges(self, dataset: str, filter_: str) -> Spans:
        return self.tail.indexed_ranges(self.chain.key, dataset, filter_)

    def _filters(self) -> Iterator[tuple[str, str]]:
        """Every dataset with each contract or event it is wanted of; `""` stands for all."""
        for dataset in self.datasets:
            wanted = filters(dataset, self.chain.settings.chosen, self.events)
            yield from ((dataset, filter_) for filter_ in wanted)

    def _wanted(self) -> tuple[str, ...]:
        # Headers are what links the tail together, so they are read whether or not `blocks` is kept.
        return self.datasets if "blocks" in self.datasets else ("blocks", *self.datasets)

    def _put(self, chunk: Collected, ranges: Sequence[tuple[str, str]]) -> None:
        kept = {self.chain.datasets[name].table.name for name in self.datasets} | {LOGS.name}
        kept |= {self.chain.datasets[name].table.name for name, _ in ranges if name in self.chain.datasets}
        split = {name: _by_height(rows) for name, rows in chunk.tables.items() if name in kept}
        entries = [
            TailBlock(
                block,
                {name: arrow_ipc.dump(rows[block.height]) for name, rows in split.items() if block.height in rows},
            )
            for block in chunk.chain
        ]
        self.tail.put(self.chain.key, entries, span=chunk.span, ranges=[*self._filters(), *ranges])

    # --- final blocks ------------------------------------------------------------------------------------------------

    async def _finalise(self, finalized: int) -> None:
        """Move final blocks where there are many of them, or where they have waited for long."""
        now_s = self.seams.clock.monotonic_s()
        final = self._final(finalized)
        if not final:
            self._waits_since_s = None
            return
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        if len(final) >= FINALISE_BLOCKS or now_s - self._waits_since_s >= FINALISE_S:
            await asyncio.to_thread(self.finalise, finalized)
            self._waits_since_s = None

    def _final(self, finalized: int) -> list[Block]:
        return [block for block in self.tail.blocks(self.chain.key) if block.height <= finalized]

    def finalise(self, finalized: int) -> int:
        """Move all of the tail's final blocks into the lake, now; how many blocks moved."""
        final = self._final(finalized)
        for start in range(0, len(final), MOVE_BLOCKS):
            part = final[start : start + MOVE_BLOCKS]
            after = max((self.lake.last(table, self._stream) for table in TABLES.values()), default=0)
            batch = self.tail.open_batch(self.chain.key, Span(part[0].height, part[-1].height), (MOVED,), after=after)
            self._move(batch, part[-1])
        return len(final)

    def _move(self, batch: Batch, last: Block) -> None:
        for name, table in sorted(TABLES.items()):
            streams = self.tail.rows(batch.chain, name, batch.span.first, batch.span.last)
            if streams:
                rows = arrow_ipc.load((stream for _, stream in streams), table)
                self.lake.append(table, rows, stream=self._stream, batch=batch.number)
        self.tail.close_batch(batch, last)
        self.tail.drop(batch.chain, batch.span.last)

    def recover(self) -> None:
        """Finish what a killed process had begun: moves, whose rows are still in the tail, and half-told indexed
        ranges."""
        key = self.chain.key
        finish_rewind(self.lake, self.tail, key)
        kept = {block.height: block for block in self.tail.blocks(key)}
        if not kept:
            return
        for batch in self.tail.open_batches(key):
            if batch.datasets == (MOVED,):
                self._move(batch, kept[batch.span.last])
        moved = self.tail.indexed_ranges(key, MOVED) & [Span(min(kept), max(kept))]
        if moved:
            self.tail.drop(key, max(span.last for span in moved))
        self._read_again_what_lacks_something()

    def _read_again_what_lacks_something(self) -> None:
        """Forget the tail from the first block on that was read without something that is wanted now."""
        kept = self.tail.blocks(self.chain.key)
        if kept:
            span = Span(kept[0].height, kept[-1].height)
            contracts = self.chain.settings.chosen
            lacking = missing(self.tail, self.chain.key, span, self.datasets, contracts, self.events)
            wanted = missing_of(self.tail, self.chain, self.scope, span.last)
            lacking += [Work(part, each.datasets, each.filters) for each in wanted if (part := each.spans & [span])]
            if lacking:
                first = min(each.first for work in lacking for each in work.spans)
                self.tail.rollback(self.chain.key, first - 1)


def _by_height(rows: pa.Table) -> dict[int, pa.Table]:
    """Rows in the order of the chain, cut into one table a block."""
    import numpy as np

    heights = rows["height"].to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(heights)) + 1).tolist(), len(heights)]
    return {int(heights[a]): rows.slice(a, b - a) for a, b in pairwise(cuts) if b > a}
