"""What stored data needs while a chain is followed: histories sorted soon, small files merged now and then."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainfolio.seams import Clock
from chainfolio.supervisor import Task
from chainfolio.tables import TABLES
from indexer import materialise

if TYPE_CHECKING:
    from storage.lake import Lake
    from storage.tail import Tail

MATERIALISE_EVERY_S = 30.0
COMPACT_EVERY_S = 3600.0


@dataclass(slots=True)
class Maintenance:
    """Keeps one chain's stored data handy. One thing after the other: a compaction must not meet a replacement."""

    lake: Lake
    tail: Tail
    chain: str
    clock: Clock
    _compacted_s: float = 0.0

    async def run(self, task: Task) -> None:
        """Until cancelled, beside a follower, under the same lock, as a task of the supervisor."""
        self._compacted_s = self.clock.monotonic_s()
        while True:
            await self.clock.sleep(MATERIALISE_EVERY_S)
            due = asyncio.ensure_future(asyncio.to_thread(self.once))
            try:
                await asyncio.shield(due)
            finally:
                await asyncio.wait([due])  # the lock is held until the thread has ended
            task.progressed()

    def once(self) -> None:
        """What is due now."""
        materialise.materialise(self.lake, self.tail, self.chain, tuple(materialise.HISTORIES))
        now_s = self.clock.monotonic_s()
        if now_s - self._compacted_s >= COMPACT_EVERY_S:
            self.compact()
            self._compacted_s = now_s

    def compact(self) -> None:
        """Merge the small files of every table of the chain."""
        for table in TABLES.values():
            if self.lake.exists(table):
                self.lake.compact(table, self.chain)
