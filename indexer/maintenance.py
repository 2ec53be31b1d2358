"""Maintain stored data while a chain is followed: materialise histories, and merge small files."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainfolio.environment import Clock
from chainfolio.indexer import materialise
from chainfolio.supervisor import Task
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

MATERIALISE_EVERY_S = 30.0
COMPACT_EVERY_S = 3600.0


@dataclass(slots=True)
class Maintenance:
    """Maintains one chain's stored data.

    One task at a time: a compaction must not overlap a replacement.
    """

    lake: Lake
    tail: Tail
    chain: str
    clock: Clock
    _compacted_s: float = 0.0

    async def run(self, task: Task) -> None:
        """Run as a task of the supervisor until cancelled, beside a follower and under its lock."""
        self._compacted_s = self.clock.monotonic_s()
        while True:
            await self.clock.sleep(MATERIALISE_EVERY_S)
            due = asyncio.ensure_future(asyncio.to_thread(self.run_once))
            try:
                await asyncio.shield(due)
            finally:
                await asyncio.wait([due])  # the lock is held until the thread has ended
            task.progressed()

    def run_once(self) -> None:
        """Materialise histories, and compact if it is due."""
        materialise.materialise(self.lake, self.tail, self.chain, tuple(materialise.HISTORIES))
        now_s = self.clock.monotonic_s()
        if now_s - self._compacted_s >= COMPACT_EVERY_S:
            self.compact()
            self._compacted_s = now_s

    def compact(self) -> None:
        """Merge the small files of all tables of the chain."""
        for table in TABLES.values():
            if self.lake.exists(table):
                self.lake.compact(table, self.chain)
