"""`chainfolio worker`: indexing and jobs without the API, until it is stopped.

With --jobs it takes jobs from the queue in the PostgreSQL of the tail, which several workers share.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from chainfolio.alerts.service import AlertService
from chainfolio.cli.common import Commands, with_system
from chainfolio.cli.daily import PLACES, keep_places, opened, recorder, schedule
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.process import return_freed_memory
from chainfolio.cli.state_store import opened_states
from chainfolio.cli.telemetry import telemetry
from chainfolio.engine.history.schedule import DailySnapshots
from chainfolio.engine.service import Engine
from chainfolio.indexer.metrics import JobMetrics, TaskMetrics, WorkerMetrics, serve_metrics
from chainfolio.indexer.schedule import JobSchedule
from chainfolio.indexer.worker import Worker
from chainfolio.supervisor import Supervisor

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System
    from chainfolio.storage.state import State
    from chainfolio.storage.state.database import Database

REPORT_EVERY_S = 10.0


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("worker", parents=[common], help=GROUPS["worker"], description=__doc__)
    command.add_argument("--jobs", action="store_true", help="take jobs from the queue, shared with other workers")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Index the chains and take daily snapshots until a signal ends it; the exit code is 0.

    A line for each chain goes to standard error if its state changed.
    """
    return_freed_memory()
    with_system(options, _work_on_queue if options.jobs else _work)
    return 0


async def _work_on_queue(system: System) -> None:
    """Take jobs from the queue until SIGTERM or SIGINT; jobs that run then go back to the queue.

    The first signal ends it; an error of the worker is raised.
    """
    from chainfolio.indexer import job_queue

    system.log_problems()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(telemetry(system.settings.telemetry))
        queue = await stack.enter_async_context(job_queue.opened(system.settings.tail_url))
        from chainfolio.indexer.queue_worker import QueueWorker

        print("jobs: waiting for work", file=sys.stderr, flush=True)
        tasks = [asyncio.create_task(QueueWorker(system, queue).run()), asyncio.create_task(stopped.wait())]
        await _first_of(tasks)


async def _work(system: System) -> None:
    """Index the chains and take daily snapshots until SIGTERM or SIGINT; then close all.

    Metrics are served if the settings have a port for them.
    """
    system.log_problems()
    supervisor = Supervisor(system.environment.clock, system.environment.random)
    jobs = JobSchedule(system.settings.schedule, system.environment.clock, supervisor)
    worker = Worker(system, jobs)
    database = opened(system.settings)
    jobs.record = recorder(database)
    engine = Engine(system, worker.status, supervisor)
    daily, states = schedule(engine.history, jobs, database), opened_states(system.settings)
    server = system.settings.server
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(telemetry(system.settings.telemetry))
        if server.metrics_port:
            read = [WorkerMetrics(worker), TaskMetrics(supervisor), JobMetrics(jobs), DailySnapshots(daily)]
            stack.enter_context(serve_metrics(read, server.host, server.metrics_port))
        stack.callback(_close, database)
        stack.callback(_close, states)
        await stack.enter_async_context(jobs.running())
        await stack.enter_async_context(daily.running())
        await stack.enter_async_context(AlertService(engine, states).running(supervisor))
        jobs.add(PLACES, partial(keep_places, system, database), at_start=True)
        await _run_until(stopped, worker)


def _close(opened: Callable[[], Database | State | None]) -> None:
    if (store := opened()) is not None:
        store.close()


async def _run_until(stopped: asyncio.Event, worker: Worker) -> None:
    """Run the worker until the event is set; an error of the worker is raised."""
    await _first_of(
        [
            asyncio.create_task(worker.run()),
            asyncio.create_task(_report(worker)),
            asyncio.create_task(stopped.wait()),
        ]
    )


async def _first_of(tasks: Sequence[asyncio.Task[object]]) -> None:
    """Wait until one of the tasks ends, and cancel the others; an error of the first one is raised."""
    try:
        finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in finished:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _report(worker: Worker) -> None:
    """Print a line for each chain to standard error every few seconds if it changed, until cancelled."""
    reported: dict[str, str] = {}
    while True:
        await asyncio.sleep(REPORT_EVERY_S if reported else 2.0)
        for key, status in worker.status.items():
            problem = status.halted or status.problem
            line = f"{key}: block {status.indexed:,} of {status.head:,}, final {status.finalized:,}"
            line += f", {status.reorgs} reorgs" if status.reorgs else ""
            line += f"; {'HALTED' if status.halted else 'waiting'}: {problem}" if problem else ""
            if reported.get(key) != line:
                reported[key] = line
                print(line, file=sys.stderr)
