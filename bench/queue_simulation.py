"""Simulate the queue of jobs in virtual time: each range is indexed once, and no job starves.

python -m bench.queue_simulation [--seeds 100] [--workers 1000] [--chains 60] [--ranges 20]

The planning is the product's: due work, added jobs, delays, parked jobs, and jobs of dead workers. `queue_store` has
the rules of procrastinate's SQL: jobs of one lock run in their order, one at a time. Workers are killed, or frozen
for ten minutes. Nodes are down for a while. One chain in ten has a range that always fails.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from procrastinate.exceptions import ConnectorException

from bench.figures import Figure, main
from bench.queue_store import ALIVE, DATASET, Installation, QueueDatabase, Row
from bench.virtual_time import virtual_loop
from chainfolio.blocks import Span, Spans
from chainfolio.errors import Locked
from chainfolio.indexer.job_queue import JobQueue
from chainfolio.indexer.queue_worker import LOOK_EVERY_S, RANGE_BLOCKS, QueueWorker

READ_S, COMMIT_S = (5.0, 120.0), (0.5, 3.0)  # of one range
FROZEN_S = 600.0
OUTAGE_S = 300.0
ACCIDENT_S = 1800.0  # average seconds between accidents of a busy worker
FAULTY = 10  # one chain in ten has a range that always fails


class ProcessKilled(BaseException):
    """The process of a worker was killed; its job must stop."""


class SimulatedWorker(QueueWorker):
    """A worker whose jobs take virtual time. It can be killed or frozen.

    Attributes:
        silent_since_s: When its heartbeats stopped; infinite while it lives.
    """

    silent_since_s = ALIVE
    is_dead = False
    running = 0

    def __post_init__(self) -> None:
        """Register the jobs, as the product does."""
        super().__post_init__()
        self.awake = asyncio.Event()

    @property
    def shared(self) -> Installation:
        """The chains, locks and jobs that all workers share."""
        database: Any = self.queue.app
        shared: Installation = database.shared
        return shared

    async def _due_maintenance(self, chain: Any) -> list[tuple[str, dict[str, int]]]:
        return [("materialise", {})] if chain.key in self.shared.dirty else []

    async def _missing_buckets(self, chain: object) -> list[int]:
        return []

    async def _index(self, chain: str, first: int, last: int) -> None:
        """Read the missing parts of a range, and commit them under the chain's lock; both take virtual time.

        As in the product, a commit is refused if another process indexed the blocks meanwhile.
        """
        shared = self.shared
        source = next(each for each in self.system.chains if each.key == chain)
        await source.heads()
        span = Span(first, min(last, await self._last(source)))
        work = await self._missing(source, span)
        if not work:
            return
        await self._work(shared.random.uniform(*READ_S))
        if (chain, first) in shared.faulty:
            raise RuntimeError("a fault of the program")
        async with self._locked(chain):
            if await self._missing(source, span) != work:
                raise Locked("tail", "another process indexed the blocks")
            await self._work(shared.random.uniform(*COMMIT_S))
            for start in range(first // RANGE_BLOCKS, last // RANGE_BLOCKS + 1):
                shared.commits[chain, start] += 1
            for each in work:
                shared.indexed[chain] = shared.indexed[chain] | each.spans
            shared.dirty.add(chain)

    async def _materialise(self, chain: str) -> None:
        async with self._locked(chain):
            await self._work(5.0)
            self.shared.dirty.discard(chain)

    async def _work(self, duration_s: float) -> None:
        """Wait for the time that a job takes; a frozen worker also waits until it wakes up.

        Raises:
            ProcessKilled: The worker died meanwhile.
        """
        await asyncio.sleep(duration_s)
        if self.silent_since_s <= self.shared.now_s and not self.is_dead:
            await self.awake.wait()
        if self.is_dead:
            raise ProcessKilled

    async def process(self, number: int, row: Row) -> None:
        """Run a job as procrastinate does: finish it, or ask its strategy when it is tried again."""
        database: Any = self.queue.app
        retry, task = database.tasks[row.job.task_name]
        job = row.job.evolve(attempts=row.attempts)
        context = SimpleNamespace(job=job, abort_reason=lambda: None)
        try:
            try:
                await task(context, **row.job.task_kwargs)
            except Exception as error:  # of the job: it is tried again or parked
                decision = retry.get_retry_decision(exception=error, job=job)
                if decision is None:
                    self.shared.finish(number, "failed")
                else:
                    self.shared.put_back(number, (decision.retry_at - datetime.now(UTC)).total_seconds())
            else:
                self.shared.finish(number, "succeeded")
        except (ConnectorException, ProcessKilled):  # taken over meanwhile, or dead
            pass
        finally:
            self.running -= 1
            self.shared.wake.set()


@contextmanager
def _lock(worker: SimulatedWorker, chain: str) -> Iterator[None]:
    """Hold the lock of a chain in the tail. A dead worker's connection is closed, so its locks are free."""
    locks = worker.shared.locks
    if chain in locks:
        raise Locked("tail", "another process holds the chain")
    locks[chain] = worker
    try:
        yield
    finally:
        if locks.get(chain) is worker:
            del locks[chain]


# --- one run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a run.

    Attributes:
        not_once: Ranges that were not committed exactly once, without those that always fail.
        parked: Ranges of parked jobs.
        starved: Jobs that still wait at the end.
        longest_wait_s: Virtual seconds from adding a job until it began first.
    """

    not_once: int
    parked: set[tuple[str, int]]
    faulty: set[tuple[str, int]]
    starved: int
    ranges: int
    deaths: int
    hours: float
    longest_wait_s: float


def simulate(seed: int, *, workers: int = 1000, chains: int = 60, ranges: int = 20) -> Outcome:
    """Run a whole back-fill in virtual time, and return what it did. Equal arguments give the same run."""
    loop = virtual_loop()
    log = logging.getLogger("chainfolio.jobs")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        return loop.run_until_complete(_run(random.Random(seed), workers, chains, ranges))
    finally:
        log.setLevel(level)
        loop.close()


async def _run(dice: random.Random, workers: int, chains: int, ranges: int) -> Outcome:
    lengths = {f"chain-{number}": dice.randint(1, 2 * ranges - 1) for number in range(chains)}
    shared = Installation(dice, lengths)
    for key in list(lengths)[::FAULTY]:
        shared.faulty.add((key, RANGE_BLOCKS * dice.randrange(lengths[key])))
    for _ in range(workers):
        shared.workers.append(_worker(shared))
    background = [asyncio.create_task(each) for each in (_dispatch(shared), _look(shared), _accidents(shared))]
    while not _is_over(shared):
        await asyncio.sleep(LOOK_EVERY_S)
        for task in background:
            if task.done():
                task.result()
        assert shared.now_s < 60 * 86_400, "the back-fill does not end"
    unfinished = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in unfinished:
        task.cancel()
    await asyncio.gather(*unfinished, return_exceptions=True)
    good = {(key, n) for key, length in lengths.items() for n in range(length)}
    faulty = {(key, first // RANGE_BLOCKS) for key, first in shared.faulty}
    parked = _parked(shared)
    return Outcome(
        not_once=sum(shared.commits[each] != 1 for each in good - parked)
        + sum(shared.commits[each] for each in faulty),
        parked=parked,
        faulty=faulty,
        starved=sum(row.status in ("todo", "doing") for row in shared.jobs.values()),
        ranges=len(good),
        deaths=shared.deaths,
        hours=shared.now_s / 3600,
        longest_wait_s=shared.longest_wait_s,
    )


def _worker(shared: Installation) -> SimulatedWorker:
    """Return a new worker of an installation."""
    clock = SimpleNamespace(monotonic_s=lambda: shared.now_s, sleep=asyncio.sleep)
    tail = SimpleNamespace(
        blocks=lambda chain: [],
        indexed_ranges=lambda chain, dataset, name: shared.indexed[chain],
        lock=lambda chain: _lock(worker, chain),
    )
    system: Any = SimpleNamespace(
        chains=shared.chains,
        chain=lambda key: next(each for each in shared.chains if each.key == key),
        tail=tail,
        datasets=lambda chain: [DATASET],
        event_filters=lambda chain, names: (),
        environment=SimpleNamespace(clock=clock),
    )
    database: Any = QueueDatabase(shared)
    worker: SimulatedWorker = SimulatedWorker(system, JobQueue(database))
    return worker


def _is_over(shared: Installation) -> bool:
    """Return True if no job waits or runs, and all missing ranges are of parked jobs."""
    if shared.dirty or any(row.status in ("todo", "doing") for row in shared.jobs.values()):
        return False
    missing = {
        (key, start)
        for key in shared.lengths
        for span in Spans([Span(0, shared.last(key))]) - shared.indexed[key]
        for start in range(span.first // RANGE_BLOCKS, span.last // RANGE_BLOCKS + 1)
    }
    return missing <= _parked(shared)


def _parked(shared: Installation) -> set[tuple[str, int]]:
    """Return the ranges of parked jobs, by chain and number."""
    jobs = [row.job for row in shared.jobs.values() if row.status == "failed"]
    return {(str(job.task_kwargs["chain"]), int(str(job.task_kwargs.get("first", 0))) // RANGE_BLOCKS) for job in jobs}


async def _dispatch(shared: Installation) -> None:
    """Give each runnable job to a random free worker, as if procrastinate's workers raced for it."""
    processes: set[asyncio.Task[None]] = set()
    while True:
        shared.wake.clear()
        free = shared.free_workers()
        for number, row in list(shared.runnable()):
            if not free:
                break
            worker = shared.random.choice(free)
            worker.running += 1
            if worker.running >= worker.concurrency:
                free.remove(worker)
            if not row.attempts:
                shared.longest_wait_s = max(shared.longest_wait_s, shared.now_s - row.added_s)
            row.status, row.worker = "doing", worker
            process = asyncio.create_task(worker.process(number, row))
            processes.add(process)
            process.add_done_callback(processes.discard)
        await shared.wake.wait()


async def _look(shared: Installation) -> None:
    """Repeatedly let a random living worker look for due work and dead workers, until cancelled."""
    while True:
        worker = shared.random.choice([each for each in shared.workers if each.silent_since_s == ALIVE])
        await worker.take_over()
        await worker.add_due()
        await asyncio.sleep(LOOK_EVERY_S)


async def _accidents(shared: Installation) -> None:
    """Kill workers, freeze them, and let nodes be down, at random times."""
    loop = asyncio.get_running_loop()
    while True:
        busy = [row.worker for row in shared.jobs.values() if row.worker is not None]
        await asyncio.sleep(shared.random.expovariate((len(busy) + 1) / ACCIDENT_S))
        busy = [worker for worker in busy if not worker.is_dead]
        accident = shared.random.choice(("kill", "freeze", "outage"))
        if accident == "outage":
            shared.outages[shared.random.choice(list(shared.lengths))] = shared.now_s + OUTAGE_S
        elif busy:
            worker = shared.random.choice(busy)
            if worker.silent_since_s == ALIVE:
                worker.silent_since_s = shared.now_s
                if accident == "kill":
                    _kill(shared, worker)
                else:
                    loop.call_later(FROZEN_S, _thaw, shared, worker)


def _kill(shared: Installation, worker: SimulatedWorker) -> None:
    """End a worker, free its locks, and start another one in its place."""
    worker.is_dead = True
    worker.awake.set()
    shared.deaths += 1
    for chain in [key for key, holder in shared.locks.items() if holder is worker]:
        del shared.locks[chain]
    shared.workers[shared.workers.index(worker)] = _worker(shared)


def _thaw(shared: Installation, worker: SimulatedWorker) -> None:
    if not worker.is_dead:
        worker.silent_since_s = ALIVE
        worker.awake.set()
        worker.awake = asyncio.Event()
        shared.wake.set()


def run(chosen: argparse.Namespace) -> list[Figure]:
    """Simulate many back-fills, each with another seed."""
    began_s = time.perf_counter()
    runs = [
        simulate(seed, workers=chosen.workers, chains=chosen.chains, ranges=chosen.ranges)
        for seed in range(chosen.seeds)
    ]
    took_s = (time.perf_counter() - began_s) / len(runs)
    name = f"{chosen.workers} workers, {chosen.chains} chains, back-fills in virtual time, {chosen.seeds} seeds"
    wrong, starved = sum(each.not_once for each in runs), sum(each.starved for each in runs)
    waits_h = max(each.longest_wait_s for each in runs) / 3600
    hours = sum(each.hours for each in runs) / len(runs)
    deaths, ranges = sum(each.deaths for each in runs), sum(each.ranges for each in runs)
    counts = f"{wrong} of {ranges:,}; {starved}; {deaths:,} workers died"
    return [
        Figure(
            "queue_simulation", f"{name}: ranges not indexed once; starved jobs", counts, "0; 0", wrong == starved == 0
        ),
        Figure(
            "queue_simulation",
            f"{name}: hours of a run; longest wait of a job in hours; seconds of a run",
            f"{hours:.1f}; {waits_h:.1f}; {took_s:.1f}",
        ),
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=60)
    parser.add_argument("--ranges", type=int, default=20)


if __name__ == "__main__":
    main(__doc__, run, add)
