"""Follow the head: add new blocks to the tail, undo reorganisations, move final blocks to the lake.

The tail has all blocks that can still be reorganised. A new block must be the child of the tail's top. If it is not,
the tail is rolled back to the last common block, and the new branch is read. Final blocks move to the lake some hundred
at a time, with an intent and a mark as in a back-fill, in a stream of their own. A chain whose final blocks changed
halts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from chainfolio.blocks import Block, Span, Spans
from chainfolio.capabilities import Capability, find_capability, require_capability
from chainfolio.chain_blocks import hash_at
from chainfolio.chain_settings import EVERYTHING
from chainfolio.environment import Environment
from chainfolio.errors import DeepReorg, NodeBehind, Reorged, SourceError, Unavailable
from chainfolio.indexer import arrow_ipc
from chainfolio.indexer.checked import read_checked
from chainfolio.indexer.duplicates import merged
from chainfolio.indexer.rewind import check_anchor, finish_rewind
from chainfolio.indexer.scopes import NO_END, UNREAD, Scope, can_be_read, groups
from chainfolio.indexer.work import Work, filters, missing, missing_for_accounts
from chainfolio.scopes import account_filter
from chainfolio.storage.tail import TailBlock
from chainfolio.supervisor import in_thread
from chainfolio.tables import LOGS, TABLES

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.chain_results import Heads, SpanTables
    from chainfolio.chains import Chain
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Batch, Tail

CHUNK = 50
# Final blocks move when there are this many, or when one has waited this long, to limit the number of commits.
FINALISE_BLOCKS = 200
FINALISE_S = 300.0
# Limit of one commit.
MOVE_BLOCKS = 1000
# A node whose head is below ours is delayed; after this time it counts as a reorganisation.
BEHIND_S = 30.0
# The dataset name of the follower's batches, and of the heights that moved from the tail to the lake.
FINALISED = "tail"
NO_ACCOUNTS = Scope()


@dataclass(slots=True)
class Status:
    """The state of following a chain.

    Attributes:
        halted: Why it stopped; empty if it runs.
        problem: The error that it waits for; empty if there is none.
        recovered_reorgs: How often final blocks changed and were indexed again.
    """

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
        """Blocks between the node's head and the indexed one."""
        return max(0, self.head - self.indexed)


class Follower:
    """Keeps one chain's tail at its head. The caller holds the chain's lock, or `guard` does.

    Attributes:
        guard: Entered for each step. Does nothing by default.
        max_gap: If more final blocks are not indexed, following begins above them, and others index them.

    Args:
        events: The filters for the dataset `events`.
        scope: The accounts to index in addition to the datasets.
    """

    def __init__(
        self,
        chain: Chain,
        lake: Lake,
        tail: Tail,
        environment: Environment,
        datasets: Sequence[str],
        events: Sequence[str] = (),
        scope: Scope = NO_ACCOUNTS,
    ) -> None:
        """Prepare to follow; nothing is read yet.

        Args:
            chain: The chain.
            lake: Gets final blocks.
            tail: Gets newer ones.
            environment: Clock and randomness.
            datasets: Those of all new blocks.
            events: Filters of logs.
            scope: Accounts whose histories are followed.
        """
        self.chain, self.lake, self.tail, self.environment = chain, lake, tail, environment
        self.datasets, self.events, self.scope = tuple(datasets), tuple(events), scope
        self.status = Status()
        self.guard: Callable[[], AbstractAsyncContextManager[object]] = nullcontext
        self.max_gap = NO_END
        self._stream = f"{chain.key}/follow"
        self._waits_since_s: float | None = None
        self._behind_since_s: float | None = None

    async def run(
        self, progressed: Callable[[], None] = lambda: None, stops: Callable[[], bool] = lambda: False
    ) -> None:
        """Follow until cancelled, until `stops` returns True, or until the chain's final blocks have changed.

        A SourceError becomes the problem of `status`, and the step is repeated. A DeepReorg becomes `status.halted` and
        ends the run. Other errors are raised, those of the guard too.

        Args:
            progressed: Called after each step.
            stops: Following ends when it returns True.
        """
        while not self.status.halted and not stops():
            try:
                async with self.guard():
                    await self.step()
                self.status.problem = ""
                progressed()
            except DeepReorg as error:
                self.status.halted = str(error)
                return
            except SourceError as error:
                self.status.problem = str(error)
            await self._pause()

    async def _pause(self) -> None:
        """Wait until the chain announces a new block, or for about one block time."""
        if (listener := find_capability(self.chain, Capability.HEAD_EVENTS)) is not None:
            await listener.announced(self.pause_s)
        else:
            await self.environment.clock.sleep(self.pause_s)

    @property
    def pause_s(self) -> float:
        """Seconds between two steps: about one block time."""
        return max(0.2, min(self.chain.info.block_time_ms / 1000, 12.0))

    async def step(self) -> None:
        """Do one step: read the head, undo reorganisations, add new blocks, move final ones.

        Raises:
            DeepReorg: Final blocks have left the chain.
            SourceError: The chain could not be read; the next step goes on.
        """
        heads = await self._ready()
        await self._extend(heads)
        await self._finalise(heads.finalized)
        self._update_status()

    async def finalise_all(self) -> None:
        """Undo reorganisations and move all final blocks to the lake, without adding new ones.

        Call it before writing to the lake directly: all blocks that are final now are in the lake afterwards. Raises as
        `step`.
        """
        heads = await self._ready()
        await in_thread(partial(self.finalise, heads.finalized))
        self._update_status()

    async def _ready(self) -> Heads:
        """Recover after a crash, read the heads into the status, undo blocks that left the chain.

        Return the heads.
        """
        await in_thread(self.recover)
        heads = await self.chain.heads()
        self.status.head, self.status.finalized = heads.latest.height, heads.finalized
        await self._undo(heads)
        return heads

    def _update_status(self) -> None:
        top = self._top()
        self.status.indexed = top.height if top else 0
        self.status.updated_us = self.environment.clock.now_us()

    def _top(self) -> Block | None:
        return self.tail.top(self.chain.key) or self.tail.anchor(self.chain.key)

    # --- reorganisations ---------------------------------------------------------------------------------------------

    async def _undo(self, heads: Heads) -> None:
        """Roll the tail back to the last block that is on the node's chain; do nothing if its top is.

        A node that is only behind changes nothing for BEHIND_S.

        Raises:
            NodeBehind: The node's head is below the newest final block.
            DeepReorg: Not even the newest final block is on it.
        """
        blocks = self.tail.blocks(self.chain.key)
        if not blocks:
            await check_anchor(self.chain, self.tail)
            return
        if await self._is_behind(blocks, heads):
            return
        if await self._is_shared(blocks[-1], heads):
            return
        low, high = -1, len(blocks) - 1  # blocks[low] is shared (or the anchor is), blocks[high] is not
        while high - low > 1:
            middle = (low + high) // 2
            if await self._is_shared(blocks[middle], heads):
                low = middle
            else:
                high = middle
        if low < 0:
            await check_anchor(self.chain, self.tail)
        self.status.reorgs += 1
        self.tail.rollback(self.chain.key, blocks[low].height if low >= 0 else blocks[0].height - 1)

    async def _is_behind(self, blocks: Sequence[Block], heads: Heads) -> bool:
        """Return True if the node's head is one of our blocks below the top, for less than BEHIND_S.

        Raises:
            NodeBehind: Its head is below the final block.
        """
        latest, anchor = heads.latest, self.tail.anchor(self.chain.key)
        if anchor is not None and latest.height < anchor.height:
            raise NodeBehind(self.chain.key, f"the node is at block {latest.height}, block {anchor.height} is final")
        below = [*([anchor] if anchor is not None else []), *blocks[:-1]]
        if not any(block.height == latest.height and block.hash == latest.hash for block in below):
            self._behind_since_s = None
            return False
        now_s = self.environment.clock.monotonic_s()
        if self._behind_since_s is None:
            self._behind_since_s = now_s
        return now_s - self._behind_since_s < BEHIND_S

    async def _is_shared(self, block: Block, heads: Heads) -> bool:
        """Return True if the node has the block; False if it has another one there, or is below it."""
        if block.height > heads.latest.height:
            return False
        try:
            return await hash_at(self.chain, block.height) == block.hash
        except NodeBehind:
            return False

    # --- new blocks --------------------------------------------------------------------------------------------------

    async def _extend(self, heads: Heads) -> None:
        """Read new blocks above the top into the tail and move final ones to the lake; no new ones: do nothing.

        Raises:
            Unavailable: A reorganisation happened meanwhile, which the next step undoes.
        """
        assert not self._is_half_filled(), "a back-fill that was begun is made good before the head is followed"
        top = self._top()
        first = top.height + 1 if top else self._start()
        if heads.finalized - first >= self.max_gap and self.tail.top(self.chain.key) is None:
            top, first = None, heads.finalized + 1
        if first > heads.latest.height:
            return
        for span in Span(first, heads.latest.height).cut(CHUNK):
            try:
                contracts = self.chain.settings.chosen
                fetch = partial(self.chain.collect, span, self._collected_datasets(), contracts, top, self.events)
                chunk = await read_checked(self.chain, span, fetch)
            except Reorged as error:
                raise Unavailable(error.source, f"the chain changed while block {error.height} was read") from error
            if not chunk.is_linked or (top is not None and chunk.blocks and chunk.blocks[0].parent != top.hash):
                raise Unavailable(self.chain.key, "the chain changed while it was read")
            ranges = await self._add_accounts(chunk, top)
            await in_thread(partial(self._put, chunk, ranges))
            top = chunk.last or top
            await self._finalise(heads.finalized)

    async def _add_accounts(self, chunk: SpanTables, top: Block | None) -> list[tuple[str, str]]:
        """Add the rows of the scope's accounts to a chunk; return the datasets and filters that they index.

        Groups of datasets that are indexed for all accounts are left out. Datasets that no node has count as unread.
        """
        accounts, ranges = self.scope.accounts_at(chunk.span), list[tuple[str, str]]()
        if not accounts or not can_be_read(self.chain):
            return ranges
        unfiltered = {name for name, filter_ in self._filters() if not filter_}
        for group in groups(self.chain.datasets):
            if not unfiltered.issuperset(group):
                methods = await self._add_group(chunk, top, accounts, group)
                read = [name if name in methods else UNREAD + name for name in group]
                ranges += [(name, account_filter(account)) for name in read for account in accounts]
        return ranges

    async def _add_group(
        self, chunk: SpanTables, top: Block | None, accounts: Sequence[str], group: Sequence[str]
    ) -> set[str]:
        """Add rows of datasets that are read together; return those that nodes had at all heights.

        Stores notes on methods and unexplained changes. Raises Unavailable if the chain changed meanwhile.
        """
        reader, remaining, provided = require_capability(self.chain, Capability.ACCOUNT_HISTORY), chunk.span, set(group)
        hashes = {block.height: block.hash for block in chunk.blocks}
        while True:
            fetch = partial(reader.collect_accounts, remaining, accounts, group, top)
            part = await read_checked(self.chain, remaining, fetch, is_complete=False)
            if any(hashes.get(block.height) != block.hash for block in part.blocks):
                raise Unavailable(self.chain.key, "the chain changed while it was read")
            for name, rows in part.tables.items():
                if name in chunk.tables:
                    rows = merged(TABLES[name], chunk.tables[name], rows)
                chunk.tables[name] = rows
            provided &= part.read_methods.keys()
            notes = [(account, *method) for account in accounts for method in part.read_methods.items()]
            await in_thread(partial(self.tail.add_history_notes, self.chain.key, notes, part.unexplained))
            if part.span.last == chunk.span.last:
                return provided
            remaining, top = Span(part.span.last + 1, chunk.span.last), part.last or top

    def _is_half_filled(self) -> bool:
        datasets = set(self.chain.datasets)
        return any(set(batch.datasets) <= datasets for batch in self.tail.open_batches(self.chain.key))

    def _start(self) -> int:
        """Return the first height without a block to build on: above all indexed ones."""
        indexed = [span.last + 1 for name, filter_ in self._filters() for span in self._indexed_ranges(name, filter_)]
        begin, firsts = self.chain.settings.start_block, [each.first for each in self.scope.watches]
        return max([begin if self.chain.settings.index == EVERYTHING else min(firsts, default=begin), *indexed])

    def _indexed_ranges(self, dataset: str, filter_: str) -> Spans:
        return self.tail.indexed_ranges(self.chain.key, dataset, filter_)

    def _filters(self) -> Iterator[tuple[str, str]]:
        """Yield each dataset with its filters; `""` stands for all rows."""
        for dataset in self.datasets:
            dataset_filters = filters(dataset, self.chain.settings.chosen, self.events)
            yield from ((dataset, filter_) for filter_ in dataset_filters)

    def _collected_datasets(self) -> tuple[str, ...]:
        # Headers link the tail's blocks, so they are read even if `blocks` is not stored.
        return self.datasets if "blocks" in self.datasets else ("blocks", *self.datasets)

    def _put(self, chunk: SpanTables, ranges: Sequence[tuple[str, str]]) -> None:
        """Write a chunk to the tail, and mark its span as indexed for the follower's filters and for `ranges`.

        Tables of other datasets are left out, except logs. Each of `ranges` is a dataset and a filter.
        """
        names = {self.chain.datasets[name].table.name for name in self.datasets} | {LOGS.name}
        names |= {self.chain.datasets[name].table.name for name, _ in ranges if name in self.chain.datasets}
        split = {name: _by_height(rows) for name, rows in chunk.tables.items() if name in names}
        entries = [
            TailBlock(
                block,
                {name: arrow_ipc.dump(rows[block.height]) for name, rows in split.items() if block.height in rows},
            )
            for block in chunk.blocks
        ]
        self.tail.put(self.chain.key, entries, span=chunk.span, ranges=[*self._filters(), *ranges])

    # --- final blocks ------------------------------------------------------------------------------------------------

    async def _finalise(self, finalized: int) -> None:
        """Move all final blocks to the lake if they are FINALISE_BLOCKS, or have waited for FINALISE_S."""
        now_s = self.environment.clock.monotonic_s()
        final = self._final(finalized)
        if not final:
            self._waits_since_s = None
            return
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        if len(final) >= FINALISE_BLOCKS or now_s - self._waits_since_s >= FINALISE_S:
            await in_thread(partial(self.finalise, finalized))
            self._waits_since_s = None

    def _final(self, finalized: int) -> list[Block]:
        return [block for block in self.tail.blocks(self.chain.key) if block.height <= finalized]

    def finalise(self, finalized: int) -> int:
        """Move all final blocks of the tail to the lake, MOVE_BLOCKS per batch. Return their number."""
        final = self._final(finalized)
        for start in range(0, len(final), MOVE_BLOCKS):
            part = final[start : start + MOVE_BLOCKS]
            after = max((self.lake.last(table, self._stream) for table in TABLES.values()), default=0)
            batch = self.tail.open_batch(
                self.chain.key, Span(part[0].height, part[-1].height), (FINALISED,), after=after
            )
            self._move(batch, part[-1])
        return len(final)

    def _move(self, batch: Batch, last: Block) -> None:
        """Copy a batch's rows from the tail to the lake, close it, then delete its blocks from the tail."""
        for name, table in sorted(TABLES.items()):
            streams = self.tail.rows(batch.chain, name, batch.span.first, batch.span.last)
            if streams:
                rows = arrow_ipc.load((stream for _, stream in streams), table)
                self.lake.append(table, rows, stream=self._stream, batch=batch.number)
        self.tail.close_batch(batch, last)
        self.tail.drop(batch.chain, batch.span.last)

    def recover(self) -> None:
        """Finish the moves of a killed process, and roll back blocks that lack datasets or accounts."""
        key = self.chain.key
        finish_rewind(self.lake, self.tail, key)
        blocks = {block.height: block for block in self.tail.blocks(key)}
        if not blocks:
            return
        for batch in self.tail.open_batches(key):
            if batch.datasets == (FINALISED,):
                self._move(batch, blocks[batch.span.last])
        finalised = self.tail.indexed_ranges(key, FINALISED) & [Span(min(blocks), max(blocks))]
        if finalised:
            self.tail.drop(key, max(span.last for span in finalised))
        self._roll_back_incomplete()

    def _roll_back_incomplete(self) -> None:
        """Roll back to before the first block that lacks something.

        A block lacks a dataset or account that was not indexed when it was read, and is indexed now.
        """
        blocks = self.tail.blocks(self.chain.key)
        if blocks:
            span = Span(blocks[0].height, blocks[-1].height)
            contracts = self.chain.settings.chosen
            incomplete = missing(self.tail, self.chain.key, span, self.datasets, contracts, self.events)
            account_work = missing_for_accounts(self.tail, self.chain, self.scope, span.last)
            incomplete += [
                Work(part, each.datasets, each.filters) for each in account_work if (part := each.spans & [span])
            ]
            if incomplete:
                first = min(each.first for work in incomplete for each in work.spans)
                self.tail.rollback(self.chain.key, first - 1)


def _by_height(rows: pa.Table) -> dict[int, pa.Table]:
    """Split rows in block order into one table per block."""
    import numpy as np

    heights = rows["height"].to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(heights)) + 1).tolist(), len(heights)]
    return {int(heights[a]): rows.slice(a, b - a) for a, b in pairwise(cuts) if b > a}
