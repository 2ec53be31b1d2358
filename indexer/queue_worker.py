"""A worker that takes jobs from the queue, and adds those that are due.

Jobs of one chain run one after the other, under the chain's lock of the tail. If a worker dies, another one repeats its
jobs. A job that fails is repeated with growing delays, and is parked with its reason after `MAX_ATTEMPTS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from procrastinate import JobContext
from procrastinate.exceptions import ConnectorException, JobAborted
from procrastinate.job_context import AbortReason
from procrastinate.jobs import DeleteJobCondition, Status
from procrastinate.retry import BaseRetryStrategy, RetryDecision

from chainfolio.blocks import Span
from chainfolio.chain_settings import EVERYTHING
from chainfolio.errors import BadRequest, ChainfolioError, NotSupported, SourceError
from chainfolio.indexer import consistency, materialise
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.job_queue import QUEUE, JobQueue, Task
from chainfolio.indexer.maintenance import Maintenance
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.rewind import check_anchor
from chainfolio.indexer.work import Work, missing
from chainfolio.supervisor import described

if TYPE_CHECKING:
    from procrastinate.jobs import Job

    from chainfolio.chains import Chain
    from chainfolio.indexer.wiring import System

MAX_ATTEMPTS: Final = 5
FIRST_DELAY_S: Final = 2  # doubled with each attempt
RANGE_BLOCKS: Final = 10_000  # of one job; ranges begin at its multiples
MAX_WAITING: Final = 100  # ranges of a chain in the queue
LOOK_EVERY_S: Final = 10.0  # for due work, and for workers that died
HEARTBEAT_S: Final = 5.0
GRACE_S: Final = 10.0
DEAD_AFTER_S: Final = 30.0  # without a heartbeat

log = logging.getLogger("chainfolio.jobs")


class _Delays(BaseRetryStrategy):
    """Repeats a job with growing delays, unless its request is wrong or its attempts are used up."""

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        """Return the delay before the next attempt; None parks the job."""
        if isinstance(exception, asyncio.CancelledError):  # the worker is stopped
            return RetryDecision(retry_in={"seconds": 0})
        if isinstance(exception, (BadRequest, NotSupported)) or job.attempts + 1 >= MAX_ATTEMPTS:
            return None
        return RetryDecision(retry_in={"seconds": FIRST_DELAY_S * 2**job.attempts})


@dataclass(slots=True)
class QueueWorker:
    """Runs jobs of the queue on the stores and chains of a system.

    Attributes:
        concurrency: Jobs at once, of different chains.
        dead_after_s: Seconds without a heartbeat after which the jobs of another worker are taken over.
    """

    system: System
    queue: JobQueue
    concurrency: int = 4
    dead_after_s: float = DEAD_AFTER_S
    look_every_s: float = LOOK_EVERY_S
    heartbeat_s: float = HEARTBEAT_S

    def __post_init__(self) -> None:
        for name, work in (
            ("index", self._index),
            ("materialise", self._materialise),
            ("compact", self._compact),
            ("vacuum", self._vacuum),
        ):
            task = self.queue.app.task(name=name, queue=QUEUE, pass_context=True, retry=_Delays())
            task(_recorded(self.queue, work))

    async def run(self, *, wait: bool = True) -> None:
        """Run jobs until cancelled; with `wait=False`, until none can begin.

        Jobs that run when it is cancelled are given ten seconds, and then back to the queue.
        """
        looking = asyncio.create_task(self._look_after())
        try:
            await self.queue.app.run_worker_async(
                queues=[QUEUE],
                name=f"{socket.gethostname()}",
                concurrency=self.concurrency,
                wait=wait,
                install_signal_handlers=False,
                delete_jobs=DeleteJobCondition.SUCCESSFUL,
                update_heartbeat_interval=self.heartbeat_s,
                stalled_worker_timeout=self.dead_after_s,
                shutdown_graceful_timeout=GRACE_S,
            )
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking

    async def _look_after(self) -> None:
        """Take over jobs of dead workers and add due jobs, again and again, until cancelled."""
        while True:
            try:
                await self.take_over()
                await self.add_due()
            except (ChainfolioError, ConnectorException) as error:  # a node or the database is away: later again
                log.warning("due jobs: %s", described(error))
            await self.system.environment.clock.sleep(self.look_every_s)

    async def take_over(self) -> int:
        """Put the jobs of dead workers back into the queue, or park them; return their number."""
        manager = self.queue.app.job_manager
        stalled = list(await manager.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=self.dead_after_s))
        for job in stalled:
            assert job.id is not None, "it is stored"
            try:
                if job.attempts + 1 >= MAX_ATTEMPTS:
                    await manager.finish_job_by_id_async(job.id, Status.FAILED, delete_job=False)
                else:
                    await manager.retry_job_by_id_async(job.id, datetime.now(UTC))
            except ConnectorException:  # another worker was faster
                continue
            await self.queue.record_error(job, "its worker died")
            log.warning("job %s (%s) of a dead worker is tried again", job.id, job.task_name)
        return len(stalled)

    async def add_due(self) -> int:
        """Add jobs for what the stores lack, and return their number. Parked jobs are not added again."""
        present = {
            (each.chain, each.kind, each.arguments.get("first"))
            for each in await self.queue.jobs()
            if each.status not in ("succeeded", "aborted")
        }
        added = 0
        for chain in self.system.chains:
            try:
                due = await self._due(chain)
            except SourceError as error:  # its nodes are down; other chains are not affected
                log.warning("%s: no due jobs: %s", chain.key, described(error))
                continue
            for kind, arguments in due[:MAX_WAITING]:
                if (chain.key, kind, arguments.get("first")) not in present:
                    added += await self.queue.add(kind, chain.key, **arguments) is not None
        return added

    async def _due(self, chain: Chain) -> list[tuple[str, dict[str, int]]]:
        """Return kind and arguments of the jobs of a chain that its stores need."""
        due = [("index", {"first": span.first, "last": span.last}) for span in await self._missing_ranges(chain)]
        needs_histories = await asyncio.to_thread(self._maintenance(chain).due_histories)
        return [*due, ("materialise", {})] if needs_histories else due

    async def _missing_ranges(self, chain: Chain) -> list[Span]:
        """Return the ranges of final blocks that are not indexed, each within `RANGE_BLOCKS` of its beginning."""
        if chain.settings.index != EVERYTHING:
            return []
        last = await self._last(chain)
        work = await self._missing(chain, Span(chain.settings.start_block, last)) if last >= 0 else []
        starts = {
            start * RANGE_BLOCKS
            for item in work
            for span in item.spans
            for start in range(span.first // RANGE_BLOCKS, span.last // RANGE_BLOCKS + 1)
        }
        first = chain.settings.start_block
        return [Span(max(start, first), min(start + RANGE_BLOCKS - 1, last)) for start in sorted(starts)]

    async def _last(self, chain: Chain) -> int:
        """Return the newest final block below the blocks of the tail."""
        finalized, blocks = (await chain.heads()).finalized, self.system.tail.blocks(chain.key)
        last = min(finalized, blocks[0].height - 1 if blocks else finalized)
        return last if last >= chain.settings.start_block else -1

    async def _missing(self, chain: Chain, span: Span) -> list[Work]:
        if not chain.settings.datasets:
            await chain.probe(chain.settings.start_block)
        datasets = self.system.datasets(chain)
        events = self.system.event_filters(chain, datasets)
        return missing(self.system.tail, chain.key, span, datasets, chain.settings.chosen, events)

    def _maintenance(self, chain: Chain) -> Maintenance:
        system = self.system
        keep_h = system.settings.lake.keep_replaced_h
        return Maintenance(system.lake, system.tail, chain.key, chain.info.block_time_ms, keep_h)

    # --- the jobs ----------------------------------------------------------------------------------------------------

    async def _index(self, chain: str, first: int, last: int) -> None:
        """Index the final blocks of a range that are missing. Running it again writes nothing."""
        system, indexed = self.system, self.system.chain(chain)
        with system.tail.lock(chain):
            consistency.check(system.lake, system.tail, chain)
            await check_anchor(indexed, system.tail)
            progress = Progress(system.environment.clock, 0)
            collector = Collector(indexed, system.lake, system.tail, system.environment, progress)
            await collector.recover()
            last = min(last, await self._last(indexed))
            if first <= last:
                await collector.run(await self._missing(indexed, Span(first, last)))
            await _in_thread(partial(materialise.recover, system.lake, system.tail, chain))

    async def _materialise(self, chain: str) -> None:
        """Update the histories of a chain from what is stored."""
        system = self.system
        with system.tail.lock(system.chain(chain).key):
            names = list(materialise.HISTORIES)
            await _in_thread(partial(materialise.materialise, system.lake, system.tail, chain, names))

    async def _compact(self, chain: str) -> None:
        """Merge the small files of all tables of a chain."""
        maintenance = self._maintenance(self.system.chain(chain))
        with self.system.tail.lock(chain):
            await _in_thread(maintenance.merge)

    async def _vacuum(self, chain: str) -> None:
        """Delete files that were replaced long enough ago."""
        maintenance = self._maintenance(self.system.chain(chain))
        with self.system.tail.lock(chain):
            await _in_thread(maintenance.delete_replaced)


async def _in_thread(work: Callable[[], object]) -> None:
    """Run work in a thread. If cancelled, wait for its end: the chain's lock must be held until then."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    finally:
        await asyncio.wait([running])


def _recorded(queue: JobQueue, work: Task) -> Task:
    """Return a job that stores its error, and that ends as aborted if a user cancels it."""

    async def run(context: JobContext, **arguments: Any) -> None:
        try:
            await work(**arguments)
        except asyncio.CancelledError:
            if context.abort_reason() == AbortReason.USER_REQUEST:
                raise JobAborted from None
            raise
        except Exception as error:  # any error is a failed attempt; the queue decides what follows
            await queue.record_error(context.job, described(error))
            raise

    return run
