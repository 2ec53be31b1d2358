"""Maintain the stored data of a followed chain: histories, small files, replaced files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chainfolio.indexer import materialise
from chainfolio.supervisor import in_thread
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail
    from chainfolio.table import Table

# A history is a file in each of 64 buckets. It waits until this much is pending; until then its rows are read from
# the table in block order.
PENDING_ROWS = 100_000
PENDING_MS = 30 * 60 * 1000
# More small neighbours than this are merged, in a table of 64 buckets and in one in block order.
MAX_SMALL_IN_BUCKET, MAX_SMALL = 3, 8


@dataclass(slots=True)
class Maintenance:
    """Maintains one chain's stored data.

    Its two jobs are scheduled beside a follower and under its lock. One runs at a time: files that a merge reads must
    not be deleted meanwhile.

    Attributes:
        block_time_ms: Usual time between two blocks of the chain.
        keep_replaced_h: Hours for which replaced files stay.
    """

    lake: Lake
    tail: Tail
    chain: str
    block_time_ms: int
    keep_replaced_h: int
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def materialise_due(self) -> None:
        """Run `run_once` in a thread, after other work of this object."""
        await self._run_alone(self.run_once)

    async def vacuum(self) -> None:
        """Run `delete_replaced` in a thread."""
        await self._run_alone(self.delete_replaced)

    async def _run_alone(self, work: Callable[[], None]) -> None:
        """Run work in a thread, one at a time; a cancelled call ends after the work."""
        async with self._lock:
            await in_thread(work)

    def run_once(self) -> None:
        """Materialise the histories and merge the files that are due."""
        if names := self.due_histories():
            materialise.materialise(self.lake, self.tail, self.chain, names)
        self.merge()

    def due_histories(self) -> Sequence[str]:
        """Return the histories whose pending rows are many (PENDING_ROWS) or old (PENDING_MS, by block time).

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

    def has_small_files(self) -> bool:
        """Return True if a table of the chain has many small files, which `merge` would merge."""
        return any(
            self.lake.is_crowded(table, self.chain, _max_small(table))
            for table in TABLES.values()
            if self.lake.exists(table)
        )

    def merge(self) -> None:
        """Merge files where a table of the chain has many small ones."""
        for table in TABLES.values():
            if self.lake.exists(table):
                self.lake.merge_crowded(table, self.chain, _max_small(table))

    def delete_replaced(self) -> None:
        """Delete files that were replaced long enough ago, of all chains."""
        for table in TABLES.values():
            if self.lake.exists(table):
                self.lake.delete_replaced(table, self.keep_replaced_h)


def _max_small(table: Table) -> int:
    """Return how many small neighbours of a table are not merged."""
    return MAX_SMALL_IN_BUCKET if "bucket" in table.partitions else MAX_SMALL
