"""Maintain the stored data of a followed chain: histories, small files, replaced files."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainfolio.environment import Clock
from chainfolio.indexer import materialise
from chainfolio.supervisor import Task
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

CHECK_EVERY_S = 30.0
DELETE_EVERY_S = 3600.0
# A history is a file in each of 64 buckets. It waits until this much is pending; until then its rows are read from
# the table in block order.
PENDING_ROWS = 100_000
PENDING_MS = 30 * 60 * 1000
# More small neighbours than this are merged, in a table of 64 buckets and in one in block order.
MAX_SMALL_IN_BUCKET, MAX_SMALL = 3, 8


@dataclass(slots=True)
class Maintenance:
    """Maintains one chain's stored data.

    One task at a time: a compaction must not overlap a replacement.

    Attributes:
        block_time_ms: Usual time between two blocks of the chain.
        keep_replaced_h: Hours for which replaced files stay.
    """

    lake: Lake
    tail: Tail
    chain: str
    clock: Clock
    block_time_ms: int
    keep_replaced_h: int
    _deleted_s: float = 0.0

    async def run(self, task: Task) -> None:
        """Run as a task of the supervisor until cancelled, beside a follower and under its lock."""
        self._deleted_s = self.clock.monotonic_s()
        while True:
            await self.clock.sleep(CHECK_EVERY_S)
            due = asyncio.ensure_future(asyncio.to_thread(self.run_once))
            try:
                await asyncio.shield(due)
            finally:
                await asyncio.wait([due])  # the lock is held until the thread has ended
            task.progressed()

    def run_once(self) -> None:
        """Materialise the histories and merge the files that are due; each hour, delete replaced files."""
        if names := self.due_histories():
            materialise.materialise(self.lake, self.tail, self.chain, names)
        self.merge()
        now_s = self.clock.monotonic_s()
        if now_s - self._deleted_s >= DELETE_EVERY_S:
            self.delete_replaced()
            self._deleted_s = now_s

    def due_histories(self) -> Sequence[str]:
        """Return the histories of which enough is pending.

        What is pending follows from the stores alone, so that a process that restarts often waits no longer.
        """
        sizes = {
            name: materialise.pending_size(self.lake, self.tail, self.chain, name) for name in materialise.HISTORIES
        }
        return [
            name
            for name, (rows, heights) in sizes.items()
            if rows >= PENDING_ROWS or (rows and heights * self.block_time_ms >= PENDING_MS)
        ]

    def merge(self) -> None:
        """Merge files where a table of the chain has many small ones."""
        for table in TABLES.values():
            if self.lake.exists(table):
                self.lake.merge_crowded(
                    table, self.chain, MAX_SMALL_IN_BUCKET if "bucket" in table.partitions else MAX_SMALL
                )

    def delete_replaced(self) -> None:
        """Delete files that were replaced long enough ago."""
        for table in TABLES.values():
            if self.lake.exists(table):
                self.lake.delete_replaced(table, self.keep_replaced_h)
