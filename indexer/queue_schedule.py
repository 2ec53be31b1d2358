"""Maintenance jobs of the queue, due at the times of the settings: histories, small files and replaced files.

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
    """Decides which maintenance jobs a worker adds to the queue.

    Tables of a lake have the files of all chains. One job of the first chain deletes the replaced ones.
    """

    system: System
    queue: JobQueue

    async def due(self, chain: Chain) -> list[tuple[str, dict[str, int]]]:
        """Return kind and arguments of the maintenance jobs of a chain, and record their times.

        No node is asked. An error of the chain's stores is raised.
        """
        schedule, jobs = self.system.settings.schedule, list[tuple[str, dict[str, int]]]()
        if schedule.materialise:
            maintenance = maintenance_of(self.system, chain)
            if await asyncio.to_thread(maintenance.due_histories):
                jobs.append(("materialise", {}))
            if await self._fires("compact", chain.key, schedule.materialise):
                jobs += [("compact", {})] if await asyncio.to_thread(maintenance.has_small_files) else []
        if chain is self.system.chains[0] and await self._fires("vacuum", LAKE, schedule.vacuum):
            jobs.append(("vacuum", {}))
        return jobs

    async def _fires(self, kind: str, chain: str, cron: str) -> bool:
        """Record the last time of a job, and return True if no worker recorded it before.

        False for an empty expression, and if that time is longer ago than the grace of the settings.
        """
        if not cron:
            return False
        schedule, clock = self.system.settings.schedule, self.system.environment.clock
        now = datetime.fromtimestamp(clock.now_us() / 1_000_000, UTC)
        grace = timedelta(seconds=max(schedule.misfire_grace_s, MIN_LATE_S))
        at = last_firing(cron, schedule, now, grace)
        return at is not None and await self.queue.record_firing(kind, chain, at)
