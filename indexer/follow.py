"""Follow the head: new blocks into the tail, reorganised ones out of it, final ones into the lake.

The tail holds every block that may still go. A new block must name the tail's top as its parent; where it does not, the
tail is rolled back to the last block both chains share, and the new branch is read. Blocks that became final move to the
lake as one batch, by the same intent and mark as a back-fill. A chain whose final past has changed halts, and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainfolio.blocks import Block, Span
from chainfolio.errors import DeepReorg, NodeBehind, Reorged, SourceError, Unavailable
from chainfolio.seams import Seams
from chainfolio.tables import TABLES
from indexer import ipc
from storage.tail import TailBlock

if TYPE_CHECKING:
    import pyarrow as pa

    from adapters.evm.chain import EvmChain, Fetched
    from adapters.evm.node import Heads
    from storage.lake import Lake
    from storage.tail import Batch, Tail

CHUNK = 50
FINALISE_BLOCKS = 200


@dataclass(slots=True)
class Status:
    """Where following stands. `halted` says why it stopped for good, `trouble` what it is waiting out."""

    head: int = 0
    indexed: int = 0
    finalized: int = 0
    reorgs: int = 0
    halted: str = ""
    trouble: str = ""
    updated_us: int = 0

    @property
    def lag(self) -> int:
        """Blocks between the node's head and ours."""
        return max(0, self.head - self.indexed)


class Follower:
    """Keeps one chain's tail at its head. The caller holds the chain's lock."""

    def __init__(self, chain: EvmChain, lake: Lake, tail: Tail, seams: Seams, datasets: Sequence[str]) -> None:
        self.chain, self.lake, self.tail, self.seams = chain, lake, tail, seams
        self.datasets = tuple(datasets)
        self.status = Status()
        self._stream = f"{chain.key}/collect"

    async def run(self) -> None:
        """Until cancelled, or until the chain's final past has changed."""
        pause_s = max(0.2, min(self.chain.facts.block_time_ms / 1000, 12.0))  # float: seconds
        while not self.status.halted:
            try:
                await self.step()
                self.status.trouble = ""
            except DeepReorg as error:
                self.status.halted = str(error)
            except SourceError as error:
                self.status.trouble = str(error)
            await self.seams.clock.sleep(pause_s)

    async def step(self) -> None:
        """Once: see the head, undo what was reorganised, add what is new, move what became final."""
        heads = await self.chain.heads()
        self.status.head, self.status.finalized = heads.latest.height, heads.finalized
        await self._undo(heads)
        await self._extend(heads)
        self.finalise(heads.finalized)
        top = self._top()
        self.status.indexed = top.height if top else 0
        self.status.updated_us = self.seams.clock.now_us()

    def _top(self) -> Block | None:
        return self.tail.top(self.chain.key) or self.tail.anchor(self.chain.key)

    async def _undo(self, heads: Heads) -> None:
        """Roll the tail back to the last block that is still on the node's chain."""
        key, kept = self.chain.key, self.tail.blocks(self.chain.key)
        if not kept:
            await self._check_anchor()
            return
        if kept[-1].height <= heads.latest.height and (await self.chain.block(kept[-1].height)).hash == kept[-1].hash:
            return
        low, high = -1, len(kept)  # kept[low] is shared (or the anchor is), kept[high] is not
        while high - low > 1:
            middle = (low + high) // 2
            if await self._is_shared(kept[middle], heads):
                low = middle
            else:
                high = middle
        if low < 0:
            await self._check_anchor()
        self.status.reorgs += 1
        self.tail.rollback(key, kept[low].height if low >= 0 else kept[0].height - 1)

    async def _is_shared(self, block: Block, heads: Heads) -> bool:
        if block.height > heads.latest.height:
            return False
        try:
            return (await self.chain.block(block.height)).hash == block.hash
        except NodeBehind:
            return False

    async def _check_anchor(self) -> None:
        anchor = self.tail.anchor(self.chain.key)
        if anchor is not None:
            theirs = await self.chain.block(anchor.height)
            if theirs.hash != anchor.hash:
                raise DeepReorg(self.chain.key, anchor.height, anchor.hash, theirs.hash)

    async def _extend(self, heads: Heads) -> None:
        """Read the blocks above the top. A reorg in the middle of it ends the step; the next one undoes it."""
        top = self._top()
        first = top.height + 1 if top else self.chain.settings.start_block
        if first > heads.latest.height:
            return
        for span in Span(first, heads.latest.height).cut(CHUNK):
            try:
                chunk = await self.chain.collect(span, self._wanted(), (), top)
            except Reorged as error:
                raise Unavailable(error.source, f"the chain changed while block {error.height} was read") from error
            if not chunk.chain or (top is not None and chunk.chain[0].parent != top.hash):
                raise Unavailable(self.chain.key, "the chain changed while it was read")
            await asyncio.to_thread(self._put, chunk)
            top = chunk.last

    def _wanted(self) -> tuple[str, ...]:
        # Headers are what links the tail together, so they are read whether or not `blocks` is kept.
        return self.datasets if "blocks" in self.datasets else ("blocks", *self.datasets)

    def _put(self, chunk: Fetched) -> None:
        kept = {self.chain.datasets[name] for name in self.datasets} | {"logs"}
        split = {name: _by_height(rows) for name, rows in chunk.tables.items() if name in kept}
        entries = [
            TailBlock(block, {name: ipc.dump(rows[block.height]) for name, rows in split.items() if block.height in rows})
            for block in chunk.chain
        ]
        self.tail.put(self.chain.key, entries, datasets=self.datasets)

    def finalise(self, finalized: int, *, least: int = 1) -> int:
        """Move the tail's final blocks into the lake; how many blocks moved."""
        final = [block for block in self.tail.blocks(self.chain.key) if block.height <= finalized]
        if len(final) < least or not final:
            return 0
        span = Span(final[0].height, final[-1].height)
        after = max((self.lake.last(table, self._stream) for table in TABLES.values()), default=0)
        batch = self.tail.open_batch(self.chain.key, span, self.datasets, after=after)
        self._move(batch, final[-1])
        return len(final)

    def _move(self, batch: Batch, last: Block) -> None:
        for name, table in sorted(TABLES.items()):
            streams = self.tail.rows(batch.chain, name, batch.span.first, batch.span.last)
            if streams:
                rows = ipc.load((stream for _, stream in streams), table)
                self.lake.append(table, rows, stream=self._stream, batch=batch.number)
        self.tail.close_batch(batch, last)
        self.tail.drop(batch.chain, batch.span.last)

    def recover(self) -> None:
        """Finish moves that a killed process had begun: their rows are still in the tail."""
        kept = {block.height: block for block in self.tail.blocks(self.chain.key)}
        for batch in self.tail.open_batches(self.chain.key):
            if batch.span.first in kept and batch.span.last in kept and set(batch.datasets) <= set(self.chain.datasets):
                self._move(batch, kept[batch.span.last])
        anchor = self.tail.anchor(self.chain.key)
        if anchor is not None and min(kept, default=anchor.height + 1) <= anchor.height:
            self.tail.drop(self.chain.key, anchor.height)


def _by_height(rows: pa.Table) -> dict[int, pa.Table]:
    """Rows in the order of the chain, cut into one table a block."""
    import numpy as np

    heights = rows["height"].to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(heights)) + 1).tolist(), len(heights)]
    return {int(heights[a]): rows.slice(a, b - a) for a, b in zip(cuts, cuts[1:], strict=False) if b > a}
