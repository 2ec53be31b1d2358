"""Maintenance jobs of the queue, due at the times of the settings.

All workers look at the clock. The first one that records a time adds its job, so it is added once. A time that is
recorded by a worker that dies before it adds the job is lost: the next time follows soon, and what the job does follows
from what is stored.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from chainfolio.indexer.maintenance import Maintenance
from chainfolio.indexer.schedule import last_firing

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.indexer.job_queue import JobQueue
    from chainfolio.indexer.wiring import System

MIN_LATE_S: Final = 60  # a look at the clock may be later than the grace of the settings
LAKE: Final = ""  # the chain of times at which all tables of the lake are maintained


def maintenance_of(system: System, chain: Chain) -> Maintenance:
    """Return the maintenance of a chain, by the settings of a system."""
    keep_h = system.settings.lake.keep_replaced_h
    return Maintenance(system.lake, system.tail, chain.key, chain.info.block_time_ms, keep_h)


@dataclass(frozen=True, slots=True)
class QueueSchedule:
    """Decides which maintenance jobs a worker adds to the queue: one method for each kind.

    No node is asked. Errors of the stores are raised. Tables of a lake have the files of all chains. One job of the
    first chain deletes the replaced ones.
    """

    system: System
    queue: JobQueue

    async def vacuum(self, chain: Chain) -> bool:
        """Return True if replaced files of the lake are due for deletion, and record the time.

        One job serves all chains, so it is False for all but the first.
        """
        return chain is self.system.chains[0] and await self._fires(
            "vacuum", LAKE, self.system.settings.schedule.vacuum
        )

    async def materialise(self, chain: Chain) -> bool:
        """Return True if a history of the chain is due, as its stores say; no time is recorded."""
        if not self.system.settings.schedule.materialise:
            return False
        return bool(await asyncio.to_thread(maintenance_of(self.system, chain).due_histories))

    async def compact(self, chain: Chain) -> bool:
        """Return True if the time has come and the chain has many small files, and record the time.

        True also if that cannot be read: its time is recorded already, and the job repeats what failed.
        """
        if not await self._fires("compact", chain.key, self.system.settings.schedule.materialise):
            return False
        try:
            return await asyncio.to_thread(maintenance_of(self.system, chain).has_small_files)
        except Exception:  # any error: the job shows it
            return True

    async def _fires(self, kind: str, chain: str, cron: str) -> bool:
        """Record the last time of a job, and return True if no worker recorded it before.

        False for an empty expression, and if that time is longer ago than the grace of the settings.

        Raises:
            StoreError: The clock is far ahead of the database's.
        """
        if not cron:
            return False
        schedule, clock = self.system.settings.schedule, self.system.environment.clock
        now = datetime.fromtimestamp(clock.now_us() / 1_000_000, UTC)
        grace = timedelta(seconds=max(schedule.misfire_grace_s, MIN_LATE_S))
        at = last_firing(cron, schedule, now, grace)
        return at is not None and await self.queue.record_firing(kind, chain, at)
