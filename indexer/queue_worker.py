"""A worker that takes jobs from the queue, adds due jobs, and follows chains without a follower.

Jobs that read blocks or accounts of one chain run at the same time, and commit one after the other (`shared_chain`).
Other jobs hold the chain's lock of the tail until they end. If a worker dies, another one repeats its jobs. A job that
fails is repeated with growing delays, and is parked with its reason after `MAX_ATTEMPTS` failures. A temporary error is
none: a node or store that is away is waited for.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import traceback
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
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
from chainfolio.errors import BadRequest, ChainfolioError, DeepReorg, Locked, NotSupported
from chainfolio.indexer import consistency, materialise
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.job_queue import ENDED, PARALLEL, QUEUE, JobQueue, Task
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.queue_follower import QueueFollower
from chainfolio.indexer.queue_schedule import QueueSchedule, maintenance_of
from chainfolio.indexer.rewind import check_anchor
from chainfolio.indexer.scopes import Scope
from chainfolio.indexer.shared_chain import SharedChain, WorkerRole, open_batches
from chainfolio.indexer.work import Work, heights, missing, missing_for_accounts
from chainfolio.indexer.worker import TEMPORARY_ERRORS
from chainfolio.spans import span
from chainfolio.supervisor import cancel_and_wait, described, in_thread

if TYPE_CHECKING:
    from procrastinate.jobs import Job

    from chainfolio.chains import Chain
    from chainfolio.indexer.wiring import System

MAX_ATTEMPTS: Final = 5  # that fail by errors that are not temporary
FIRST_DELAY_S: Final = 2  # doubled with each attempt
MAX_DELAY_S: Final = 600
RANGE_BLOCKS: Final = 10_000  # of one job; ranges begin at its multiples
MAX_WAITING: Final = 100  # jobs of a chain in the queue
ACCOUNT_BUCKETS: Final = 64  # groups of the watched accounts of a chain; one job reads one group
# Missing blocks are due if they took so long, because each job makes separate files. Below the tail, they are due at
# once: their number does not grow.
RANGE_MS: Final = 60_000
ACCOUNTS_MS: Final = 600_000
LOOK_EVERY_S: Final = 10.0  # for due work, and for workers that died
HEARTBEAT_S: Final = 5.0
GRACE_S: Final = 10.0
AGAIN_S: Final = 5.0  # after the database was away
DEAD_AFTER_S: Final = 30.0  # without a heartbeat
LOCK_WAIT_S: Final = 60.0
LOCK_PAUSE_S: Final = 0.2  # between two attempts to take the lock
WAITED_OUT: Final = (*TEMPORARY_ERRORS, DeepReorg)  # the worker that follows undoes a reorganisation

log = logging.getLogger("chainfolio.jobs")


class _Delays(BaseRetryStrategy):
    """Repeats a job with growing delays, unless its request is wrong or it failed `MAX_ATTEMPTS` times."""

    def __init__(self) -> None:
        self.failures: dict[int | None, int] = {}  # by the number of a job; written by the job before it ends

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        """Return the delay before the next attempt; None parks the job.

        A stopped worker's job begins again at once. Wrong requests are never repeated; temporary errors always are.
        """
        if isinstance(exception, asyncio.CancelledError):  # the worker is stopped
            return RetryDecision(retry_in={"seconds": 0})
        is_temporary = isinstance(exception, WAITED_OUT)
        if isinstance(exception, (BadRequest, NotSupported)):
            return None
        if not is_temporary and self.failures.get(job.id, job.attempts + 1) >= MAX_ATTEMPTS:
            return None
        return RetryDecision(retry_in={"seconds": min(FIRST_DELAY_S * 2 ** min(job.attempts, 16), MAX_DELAY_S)})


@dataclass(slots=True)
class QueueWorker:
    """Runs jobs of the queue on the stores and chains of a system.

    Attributes:
        concurrency: Jobs at once.
        dead_after_s: Seconds without a heartbeat after which the jobs of another worker are taken over.
    """

    system: System
    queue: JobQueue
    concurrency: int = 4
    dead_after_s: float = DEAD_AFTER_S
    look_every_s: float = LOOK_EVERY_S
    heartbeat_s: float = HEARTBEAT_S
    _warned: dict[str, str] = field(default_factory=dict)
    _checked: set[str] = field(default_factory=set)  # chains whose stores belong together
    _turns: dict[str, threading.Lock] = field(default_factory=dict)  # of the jobs that commit to each chain

    def __post_init__(self) -> None:
        """Register the kinds of jobs with the queue."""
        for name, work in (
            ("index", self._index),
            ("accounts", self._accounts),
            ("materialise", self._materialise),
            ("compact", self._compact),
            ("vacuum", self._vacuum),
        ):
            delays = _Delays()
            task = self.queue.app.task(name=name, queue=QUEUE, pass_context=True, retry=delays)
            task(_recorded(self.queue, delays, work))

    async def run(self, *, wait: bool = True) -> None:
        """Run jobs and follow chains until cancelled; with `wait=False`, only run jobs until none can begin.

        Jobs that run when it is cancelled are given ten seconds, and then back to the queue.
        """
        looking = asyncio.create_task(self._look_after())
        follower = QueueFollower(self.system, self._locked, self._new_collector, self._warn)
        following = follower.running() if wait else nullcontext()
        try:
            async with following:
                await self._run_once(wait=wait)
                while wait:  # it ended by itself: the database was away
                    await self.system.environment.clock.sleep(AGAIN_S)
                    await self._run_once(wait=True)
        finally:
            await cancel_and_wait(looking)

    async def _run_once(self, *, wait: bool) -> None:
        """Run jobs until cancelled, or until the database is away; with `wait=False`, until none can begin.

        Without `wait`, the database's error is raised; else it is logged.
        """
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
        except ConnectorException as error:
            if not wait:
                raise
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # the error of its farewell replaced the cancellation
                raise asyncio.CancelledError from error
            self._warn("queue", error)
        else:
            self._warn("queue", None)

    def _warn(self, subject: str, error: Exception | str | None) -> None:
        """Log an error or a problem of a subject once, until it changes or ends (None).

        Unexpected errors are logged with their traceback.
        """
        text = described(error) if isinstance(error, Exception) else error or ""
        if text and self._warned.get(subject) != text:
            log.warning("%s: %s", subject, text)
            if isinstance(error, Exception) and not isinstance(error, (ChainfolioError, ConnectorException)):
                log.warning("%s failed here:\n%s", subject, "".join(traceback.format_tb(error.__traceback__)))
        self._warned[subject] = text

    async def _look_after(self) -> None:
        """Take over jobs of dead workers and add due jobs, again and again, until cancelled."""
        while True:
            for name, work in (("take-over", self.take_over), ("due jobs", self.add_due)):
                try:
                    await work()
                except Exception as error:  # of any kind: the loop has to continue
                    self._warn(name, error)
                else:
                    self._warn(name, None)
            await self.system.environment.clock.sleep(self.look_every_s)

    async def take_over(self) -> int:
        """Put the jobs of dead workers back into the queue, or park those that failed MAX_ATTEMPTS times.

        Each gets an error. Returns the number of such jobs, with those that another worker took over meanwhile.
        """
        manager = self.queue.app.job_manager
        stalled = list(await manager.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=self.dead_after_s))
        for job in stalled:
            assert job.id is not None, "it is stored"
            try:
                if await self.queue.failures(job) + 1 >= MAX_ATTEMPTS:
                    await manager.finish_job_by_id_async(job.id, Status.FAILED, delete_job=False)
                else:
                    await self.queue.drop_twin(job)
                    await manager.retry_job_by_id_async(job.id, datetime.now(UTC))
            except ConnectorException:  # another worker was faster
                continue
            await self.queue.record_error(job, "its worker died")
            log.warning("job %s (%s) of a dead worker is tried again", job.id, job.task_name)
        return len(stalled)

    async def add_due(self) -> int:
        """Add jobs of maintenance and for missing data; return the number of added jobs.

        Ranges and accounts are added until MAX_WAITING jobs of their chain wait; maintenance is always added. Jobs
        that are in the queue are not added again, except for succeeded ones, and parked ones that are due by the clock.
        If the due jobs of a chain cannot be determined, the error is logged and they are left out.
        """
        jobs = [each for each in await self.queue.jobs() if each.status != "succeeded" and not each.is_due_again]
        present = {(each.chain, each.kind, _part(each.arguments)) for each in jobs}
        waiting = Counter(each.chain for each in jobs if each.status not in ENDED)
        added = 0
        for chain in self.system.chains:
            due = list[tuple[str, dict[str, int]]]()
            for subject, work in (("no maintenance", self._due_maintenance), ("no due jobs", self._due)):
                try:
                    due += await work(chain)
                except Exception as error:  # of this chain, such as nodes that are down; others are not affected
                    self._warn(f"{chain.key}: {subject}", error)
                else:
                    self._warn(f"{chain.key}: {subject}", None)
            new = [each for each in due if (chain.key, each[0], _part(each[1])) not in present]
            ranges = [each for each in new if each[0] in PARALLEL]
            new = [each for each in new if each[0] not in PARALLEL]
            for kind, arguments in [*new, *ranges[: max(MAX_WAITING - waiting[chain.key] - len(new), 0)]]:
                added += await self.queue.add(kind, chain.key, **arguments) is not None
        return added

    async def _due_maintenance(self, chain: Chain) -> list[tuple[str, dict[str, int]]]:
        """Return kind and arguments of due maintenance jobs; log and leave out a kind that fails."""
        schedule, due = QueueSchedule(self.system, self.queue), list[tuple[str, dict[str, int]]]()
        for is_due in (schedule.vacuum, schedule.materialise, schedule.compact):
            kind = is_due.__name__
            try:
                due += [(kind, {})] if await is_due(chain) else []
            except Exception as error:  # of one kind, such as a damaged table; others are not affected
                self._warn(f"{chain.key}: no {kind}", error)
            else:
                self._warn(f"{chain.key}: no {kind}", None)
        return due

    async def _due(self, chain: Chain) -> list[tuple[str, dict[str, int]]]:
        """Return kind and arguments of the jobs for blocks that are missing: groups of accounts, then ranges.

        Jobs that are in the queue already are included. An error of the chain's nodes or stores is raised.
        """
        due = [("accounts", {"bucket": bucket}) for bucket in await self._missing_buckets(chain)]
        due += [("index", {"first": span.first, "last": span.last}) for span in await self._missing_ranges(chain)]
        return due

    async def _missing_ranges(self, chain: Chain) -> list[Span]:
        """Return the ranges of final blocks that are not indexed, each within `RANGE_BLOCKS` of its beginning.

        A range is returned whole if one of its blocks is missing. Empty unless the settings index everything, and as
        long as the missing blocks took less than RANGE_MS and no block above them is followed.
        """
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
        if not self._is_due(chain, work, RANGE_MS):
            return []
        first = chain.settings.start_block
        return [Span(max(start, first), min(start + RANGE_BLOCKS - 1, last)) for start in sorted(starts)]

    async def _missing_buckets(self, chain: Chain) -> list[int]:
        """Return the groups of watched accounts whose histories are not indexed."""
        last = await self._last(chain)
        work = missing_for_accounts(self.system.tail, chain, self.system.scope(chain), last) if last >= 0 else []
        due = [item for item in work if self._is_due(chain, [item], ACCOUNTS_MS)]
        return sorted({account_bucket(account) for item in due for account in item.accounts})

    def _is_due(self, chain: Chain, work: list[Work], least_ms: int) -> bool:
        """Return True if the blocks of some work took `least_ms`, or if the chain is followed above them."""
        return bool(self.system.tail.blocks(chain.key)) or heights(work) * chain.info.block_time_ms >= least_ms

    async def _last(self, chain: Chain) -> int:
        """Return the newest final block below the blocks of the tail."""
        finalized, blocks = (await chain.heads()).finalized, self.system.tail.blocks(chain.key)
        last = min(finalized, blocks[0].height - 1 if blocks else finalized)
        return last if last >= chain.settings.start_block else -1

    async def _missing(self, chain: Chain, span: Span) -> list[Work]:
        """Return the work that a span lacks, in the chain's datasets, which a probe may choose first."""
        if not chain.settings.datasets:
            await chain.probe(chain.settings.start_block)
        datasets = self.system.datasets(chain)
        events = self.system.event_filters(chain, datasets)
        return missing(self.system.tail, chain.key, span, datasets, chain.settings.chosen, events)

    # --- the jobs ----------------------------------------------------------------------------------------------------

    async def _index(self, chain: str, first: int, last: int) -> None:
        """Index the final blocks of a range that are missing. Running it again writes nothing.

        What a killed process left is finished first.

        Raises:
            Locked: The chain's lock was not free for long, or another process indexed the same blocks.
            SourceError: The chain could not be read.
        """
        indexed = self.system.chain(chain)
        collector = await self._new_collector(indexed)
        last = min(last, await self._last(indexed))
        if first <= last:
            await collector.index(await self._missing(indexed, Span(first, last)))

    async def _accounts(self, chain: str, bucket: int | None = None) -> None:
        """Index the missing histories of one bucket of watched accounts; None for all accounts."""
        indexed = self.system.chain(chain)
        collector = await self._new_collector(indexed)
        watches = self.system.scope(indexed).watches
        scope = Scope(tuple(each for each in watches if bucket in (None, account_bucket(each.account))))
        await collector.index(missing_for_accounts(self.system.tail, indexed, scope, await self._last(indexed)))

    async def _new_collector(self, chain: Chain) -> Collector:
        """Return a new collector for the current task, which shares the chain with other tasks.

        Each time the chain's last final block is compared with the node. At the first call, and whenever a commit was
        interrupted, the stores are checked and the interrupted work is finished. Errors of these checks are raised.
        """
        system = self.system
        task = asyncio.current_task()
        shared = SharedChain(
            chain,
            system.lake,
            system.tail,
            system.environment.clock,
            system.tail.rewinds(chain.key),
            lambda: task is not None and task.cancelling() > 0,
            self._turns.setdefault(chain.key, threading.Lock()),
        )
        progress = Progress(system.environment.clock, 0)
        role = WorkerRole(0, shared, shared.guard)
        collector = Collector(chain, system.lake, system.tail, system.environment, progress, role=role)
        await check_anchor(chain, system.tail)
        async with self._locked(chain.key):  # if it is not free, nothing is read that could not be stored
            if chain.key not in self._checked or open_batches(system.tail, chain):
                await in_thread(partial(consistency.check, system.lake, system.tail, chain.key))
                await collector.recover()
            self._checked.add(chain.key)
        return collector

    @asynccontextmanager
    async def _locked(self, chain: str) -> AsyncIterator[None]:
        """Hold the chain's lock during the block. Other jobs hold it for a commit, so it is waited for.

        Raises:
            Locked: It was not free for `LOCK_WAIT_S`.
        """
        clock = self.system.environment.clock
        end_s = clock.monotonic_s() + LOCK_WAIT_S
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(self.system.tail.lock(chain))
                    break
                except Locked:
                    if clock.monotonic_s() >= end_s:
                        raise
                await clock.sleep(LOCK_PAUSE_S)
            yield

    async def _materialise(self, chain: str) -> None:
        """Update the histories of a chain from what is stored, and merge small files where there are many."""
        system, maintenance = self.system, maintenance_of(self.system, self.system.chain(chain))
        async with self._locked(chain):
            names = list(materialise.HISTORIES)
            await in_thread(partial(materialise.materialise, system.lake, system.tail, chain, names))
            await in_thread(maintenance.merge)

    async def _compact(self, chain: str) -> None:
        """Merge the small files of all tables of a chain; take its lock only if there are many."""
        maintenance = maintenance_of(self.system, self.system.chain(chain))
        if not await asyncio.to_thread(maintenance.has_small_files):
            return
        async with self._locked(chain):
            await in_thread(maintenance.merge)

    async def _vacuum(self, chain: str) -> None:
        """Delete files of all chains that were replaced long enough ago, which no job reads any more."""
        await in_thread(maintenance_of(self.system, self.system.chain(chain)).delete_replaced)


def account_bucket(account: str) -> int:
    """Return the group of an account, the same in each process: its CRC-32 modulo `ACCOUNT_BUCKETS`."""
    return zlib.crc32(account.encode()) % ACCOUNT_BUCKETS


def _part(arguments: Mapping[str, Any]) -> Any:
    """Return what distinguishes jobs of one kind and chain: the first block, or the group of accounts."""
    return arguments.get("first", arguments.get("bucket"))


def _recorded(queue: JobQueue, delays: _Delays, work: Task) -> Task:
    """Return a job that stores its error, and that ends as aborted if a user cancels it."""

    async def run(context: JobContext, **arguments: Any) -> None:
        job = context.job
        try:
            with span("job", job=str(job.task_name), chain=str(arguments.get("chain", ""))):
                await work(**arguments)
        except asyncio.CancelledError:
            if context.abort_reason() == AbortReason.USER_REQUEST:
                raise JobAborted from None
            await queue.drop_twin(job)
            raise
        except Exception as error:  # any error is a failed attempt; the queue decides what follows
            is_temporary = isinstance(error, WAITED_OUT)
            delays.failures[job.id] = await queue.record_error(job, described(error), is_temporary=is_temporary)
            if delays.get_retry_decision(exception=error, job=job) is not None:
                await queue.drop_twin(job)
            raise

    return run
