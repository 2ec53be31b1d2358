"""Chains, locks and jobs of the simulated queue, under the rules of procrastinate's SQL."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from procrastinate.exceptions import AlreadyEnqueued, ConnectorException
from procrastinate.jobs import Job, Status

from chainfolio.blocks import Spans
from chainfolio.chain_settings import EVERYTHING
from chainfolio.errors import Unavailable
from chainfolio.indexer.job_queue import _JOBS
from chainfolio.indexer.queue_worker import RANGE_BLOCKS

DATASET = "blocks"
ALIVE = float("inf")  # heartbeats have not stopped
STARTED = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Row:
    """A stored job. `ready_s` is the virtual time from which it may begin."""

    job: Job
    status: str = "todo"
    attempts: int = 0
    ready_s: float = 0.0
    added_s: float = 0.0
    worker: Any | None = None
    reasons: list[tuple[str, bool]] = field(default_factory=list)


@dataclass(eq=False)
class Installation:
    """Shared data of the workers: chains with their indexed ranges, locks, and jobs."""

    random: random.Random
    lengths: dict[str, int]  # ranges by chain
    jobs: dict[int, Row] = field(default_factory=dict)
    locks: dict[str, Any] = field(default_factory=dict)  # locks of the tail, with the worker that holds each
    indexed: dict[str, Spans] = field(default_factory=lambda: defaultdict(Spans))
    commits: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    dirty: set[str] = field(default_factory=set)  # chains whose histories are due
    outages: dict[str, float] = field(default_factory=dict)  # virtual time at which the nodes of a chain answer again
    faulty: set[tuple[str, int]] = field(default_factory=set)
    workers: list[Any] = field(default_factory=list)
    longest_wait_s: float = 0.0
    deaths: int = 0
    number: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Make the chains, with the parts that planning reads."""
        self.loop = asyncio.get_running_loop()
        self.chains: list[Any] = [
            SimpleNamespace(
                key=key,
                settings=SimpleNamespace(index=EVERYTHING, start_block=0, datasets=[DATASET], chosen=()),
                heads=lambda key=key: self._heads(key),
                info=SimpleNamespace(block_time_ms=12_000),
            )
            for key in self.lengths
        ]

    @property
    def now_s(self) -> float:
        """Virtual time in seconds."""
        return self.loop.time()

    def free_workers(self) -> list[Any]:
        """Return the living workers that can take one more job."""
        return [each for each in self.workers if each.silent_since_s == ALIVE and each.running < each.concurrency]

    async def _heads(self, key: str) -> Any:
        if self.outages.get(key, 0.0) > self.now_s:
            raise Unavailable(key, "the node is down")
        return SimpleNamespace(finalized=self.last(key))

    def last(self, key: str) -> int:
        """Return the newest final block of a chain, which never changes."""
        return self.lengths[key] * RANGE_BLOCKS - 1

    # --- rules of procrastinate's SQL --------------------------------------------------------------------------------

    def add(self, job: Job) -> int:
        """Insert a job and return its number; AlreadyEnqueued if the same job waits."""
        if any(row.status == "todo" and row.job.queueing_lock == job.queueing_lock for row in self._of(job.lock)):
            raise AlreadyEnqueued
        self.number += 1
        self.jobs[self.number] = Row(job.evolve(id=self.number), added_s=self.now_s)
        self.wake.set()
        return self.number

    def _of(self, lock: str | None) -> list[Row]:
        return [row for row in self.jobs.values() if row.job.lock == lock]

    def runnable(self) -> Iterator[tuple[int, Row]]:
        """Yield the jobs that may begin, by priority and number: the first of each lock without a running one."""
        busy = {row.job.lock for row in self.jobs.values() if row.status == "doing"}
        waiting = [(number, row) for number, row in self.jobs.items() if row.status == "todo"]
        for number, row in sorted(waiting, key=lambda item: (-item[1].job.priority, item[0])):
            if row.job.lock not in busy:
                busy.add(row.job.lock)  # later jobs wait for this one, even if it is delayed
                if row.ready_s <= self.now_s:
                    yield number, row

    def finish(self, number: int, status: str) -> None:
        """End a job; those that succeeded are deleted. Raises ConnectorException if it is over already."""
        row = self.jobs.get(number)
        if row is None or row.status not in ("todo", "doing"):
            raise ConnectorException("not in doing status")
        row.status, row.worker = status, None
        if status == "succeeded":
            del self.jobs[number]
        self.wake.set()

    def put_back(self, number: int, delay_s: float) -> None:
        """Put a running job back. Raises ConnectorException if it does not run."""
        row = self.jobs.get(number)
        if row is None or row.status != "doing":
            raise ConnectorException("not in doing status")
        row.status, row.worker = "todo", None
        row.attempts += 1
        row.ready_s = self.now_s + max(round(delay_s), 0)
        self.loop.call_at(row.ready_s, self.wake.set)
        self.wake.set()


@dataclass(slots=True)
class QueueDatabase:
    """The database of a worker: it answers the statements of `JobQueue` and of procrastinate's manager."""

    shared: Installation
    tasks: dict[str, tuple[Any, Callable[..., Coroutine[Any, Any, None]]]] = field(default_factory=dict)

    @property
    def connector(self) -> QueueDatabase:
        """This object, which answers statements."""
        return self

    @property
    def job_manager(self) -> QueueDatabase:
        """This object, which manages jobs."""
        return self

    def task(self, *, name: str, queue: str, pass_context: bool, retry: object) -> Callable[[Any], None]:
        """Register a task."""
        return lambda work: self.tasks.__setitem__(name, (retry, work))

    def configure_task(self, kind: str, *, queue: str, lock: str, queueing_lock: str, priority: int) -> Any:
        """Return a task whose jobs can be added."""

        async def defer_async(**arguments: Any) -> int:
            job = Job(queue=queue, lock=lock, queueing_lock=queueing_lock, task_name=kind, task_kwargs=arguments)
            return self.shared.add(job.evolve(priority=priority))

        return SimpleNamespace(defer_async=defer_async)

    async def execute_query_all_async(self, query: str, **_: object) -> list[dict[str, Any]]:
        """Return all jobs, as `JobQueue.jobs` reads them."""
        assert query == _JOBS
        return [
            {
                "id": number,
                "status": row.status,
                "task_name": row.job.task_name,
                "args": row.job.task_kwargs,
                "attempts": row.attempts,
                "scheduled_at": None,
                "reason": row.reasons[-1][0] if row.reasons else None,
                "added_at": STARTED,
            }
            for number, row in self.shared.jobs.items()
        ]

    async def execute_query_async(self, query: str, **values: Any) -> None:
        """Store an error, or delete the same job that waits."""
        jobs = self.shared.jobs
        if query.startswith("INSERT INTO job_errors"):
            if values["id"] in jobs:
                jobs[values["id"]].reasons.append((values["reason"], values["is_temporary"]))
            return
        assert query.startswith("DELETE FROM procrastinate_jobs WHERE status = 'todo'")
        equal_jobs = [n for n, row in jobs.items() if row.status == "todo" and row.job.queueing_lock == values["name"]]
        for number in equal_jobs:
            if number != values["id"]:
                del jobs[number]

    async def execute_query_one_async(self, query: str, **values: Any) -> dict[str, int]:
        """Return how often a job failed by errors that are not temporary."""
        assert query.startswith("SELECT count(*)")
        row = self.shared.jobs.get(values["id"])
        return {"failures": sum(not is_temporary for _, is_temporary in row.reasons) if row else 0}

    async def get_stalled_jobs(self, *, queue: str, seconds_since_heartbeat: float) -> list[Job]:
        """Return the running jobs of workers whose heartbeats stopped."""
        now_s = self.shared.now_s
        return [
            row.job
            for row in self.shared.jobs.values()
            if row.status == "doing" and row.worker and row.worker.silent_since_s < now_s - seconds_since_heartbeat
        ]

    async def finish_job_by_id_async(self, number: int, status: Status, *, delete_job: bool) -> None:
        """End a job."""
        self.shared.finish(number, status.value)

    async def retry_job_by_id_async(self, number: int, at: datetime) -> None:
        """Put a job back until a time."""
        self.shared.put_back(number, (at - datetime.now(UTC)).total_seconds())
