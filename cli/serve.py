"""`chainfolio serve`: the dashboard and the API with its documentation, and indexing beside it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from chainfolio.alerts.service import AlertService
from chainfolio.api.app import make_app
from chainfolio.api.serve import serve
from chainfolio.api.state_bounds import state_bounds
from chainfolio.cli.common import HERE, Commands, settings, settings_file
from chainfolio.cli.daily import PLACES, keep_places, recorder, schedule
from chainfolio.cli.dashboard_link import is_own_machine, new_link, owner_account, url_of
from chainfolio.cli.first_run import FirstRun
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.process import return_freed_memory
from chainfolio.cli.state_store import open_state, opened_state
from chainfolio.cli.telemetry import telemetry
from chainfolio.engine.bounds import Bound, BoundMetrics
from chainfolio.engine.history.schedule import DailySnapshots
from chainfolio.engine.lake_sql import LakeSql
from chainfolio.engine.service import Engine
from chainfolio.errors import BadSettings
from chainfolio.indexer.disk_trend import LakeMetrics, disk_trend
from chainfolio.indexer.metrics import JobMetrics, TaskMetrics, WorkerMetrics, serve_metrics
from chainfolio.indexer.schedule import JobSchedule
from chainfolio.indexer.wiring import System
from chainfolio.indexer.worker import Worker
from chainfolio.settings import Settings
from chainfolio.settings_checks import check
from chainfolio.supervisor import Supervisor

if TYPE_CHECKING:
    from chainfolio.api.app import App
    from chainfolio.storage.state import State

log = structlog.stdlib.get_logger("chainfolio.api")

# The task that asks the state store for a sign of life, so that `/readyz` knows of its absence without waiting for it.
STATE_STORE, STATE_PROBE_S = "state store", 2.0
PRICES = "prices"  # the name of the job


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("serve", parents=[common], help=GROUPS["serve"], description=__doc__)
    command.add_argument("--port", type=int, help="port to listen on (default: server.port)")
    command.add_argument("--workers", type=int, help="processes that answer (default: server.workers)")
    command.add_argument("--no-indexing", action="store_true", help="answer only; a worker elsewhere does the indexing")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve the HTTP API until a signal ends it, and index the chains unless --no-indexing is given.

    In a terminal, on an address of this machine, print a link that opens the dashboard. The exit code is 0. It starts
    again when a chain was added on the dashboard.
    """
    config = _settings(options)
    greeting = _link(options, config)
    while serve(
        partial(answering if options.no_indexing else indexing, file=_added_to(options, config)),
        config,
        greeting=greeting,
    ):
        greeting = ""
        try:
            config = _settings(options)
        except BadSettings as error:  # the file is being edited
            log.error("the settings are not valid, so the old ones stay", why=str(error))
    return 0


def _link(options: argparse.Namespace, config: Settings) -> str:
    """Return the line with a new link to the dashboard; empty if no person of this machine would read it."""
    server = config.server
    if not (sys.stdout.isatty() and server.port and is_own_machine(server.host)):  # no terminal: it would be in a log
        return ""
    with opened_state(options) as state:
        page = "portfolio" if config.chains else "start"
        link = new_link(state, owner_account(state).id, url_of(server.host, server.port), page)
    return f"Dashboard, once and within ten minutes: {link}"


def _settings(options: argparse.Namespace) -> Settings:
    """Return the settings with the port and the number of processes of the command. Raises BadSettings."""
    config = settings(options)
    port = config.server.port if options.port is None else options.port
    workers = config.server.workers if options.workers is None else options.workers
    config = msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, port=port, workers=workers))
    check(config)
    return config


def _added_to(options: argparse.Namespace, config: Settings) -> Path | None:
    """Return the settings file to which the dashboard may add chains, present or not; None if it may not.

    It may in a single process that only programs of this machine reach: it starts again, and other processes would not.
    """
    server = config.server
    return (settings_file(options) or HERE) if server.workers == 1 and is_own_machine(server.host) else None


async def answering(config: Settings, file: Path | None = None) -> App:
    """Return the app of the HTTP API without indexing.

    Args:
        file: Settings to which the dashboard may add chains.
    """
    return _app(config, file, work=False)


async def indexing(config: Settings, file: Path | None = None) -> App:
    """Return the app of the HTTP API, which also indexes chains whose lock it gets and takes snapshots.

    The dashboard may add chains to the settings `file`.
    """
    return _app(config, file, work=True)


def _app(config: Settings, file: Path | None, *, work: bool) -> App:
    """Open the stores of the settings, and return the application as of `app_of`."""
    return_freed_memory()
    system = System(config)
    system.log_problems()
    return app_of(system, open_state(config), work=work, file=file)


def app_of(system: System, state: State, *, work: bool, file: Path | None = None) -> App:
    """Return the application over a system and a state store.

    Its lifespan starts the tasks, and closes both at the end.

    Args:
        system: Its settings are those of the application, and all tasks use its clock.
        state: The state store.
        work: Index the chains and take daily snapshots in this process too.
        file: The settings file to which the dashboard may add chains.
    """
    config = system.settings
    supervisor = state.meter.supervisor = Supervisor(system.environment.clock, system.environment.random)
    jobs = JobSchedule(config.schedule, system.environment.clock, supervisor)
    jobs.record = recorder(lambda: state.database)
    worker = Worker(system, jobs)
    engine = Engine(system, worker.status, supervisor)
    daily = schedule(engine.history, jobs, lambda: state.database)
    restart = asyncio.Event()
    setup = None if file is None else FirstRun(config, file, state, system.environment, restart)
    lake = LakeSql(system.lake, system.tail, config.data_dir, config.chains)
    app = make_app(engine, state, config, system.environment, setup=setup, lake=lake)
    app.restart = restart
    if importlib.util.find_spec("mcp") is not None:
        from chainfolio.api.mcp import add_mcp  # 400 ms, and only with the extra

        add_mcp(app, engine, state)

    def bounds() -> list[Bound]:
        return [*engine.bounds(), *state_bounds(state, len(app.parts.streams), config.alerts.keep_days)]

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        supervisor.every(STATE_STORE, STATE_PROBE_S, state.ping)
        try:
            async with contextlib.AsyncExitStack() as stack:
                stack.enter_context(telemetry(config.telemetry))
                await stack.enter_async_context(jobs.running())
                jobs.add(PRICES, engine.settle_prices)
                if work:
                    await stack.enter_async_context(worker.running())
                    await stack.enter_async_context(daily.running())
                    await stack.enter_async_context(AlertService(engine, lambda: state).running(supervisor))
                    jobs.add(PLACES, partial(keep_places, system, lambda: state.database), at_start=True)
                if port := config.server.metrics_port:
                    listed = System(config).lake  # separate lake: reads do not wait while a scrape lists the tables
                    lake_metrics = LakeMetrics(lambda: disk_trend(listed, system.chains))
                    of_work = [WorkerMetrics(worker), DailySnapshots(daily), lake_metrics] if work else []
                    of_process = [TaskMetrics(supervisor), JobMetrics(jobs), BoundMetrics(bounds)]
                    read = [app.parts.traffic, *of_process, *of_work]
                    stack.enter_context(serve_metrics(read, config.server.host, port))
                yield
        finally:
            await state.meter.close()
            await supervisor.close()
            await system.close()
            state.close()

    app.lifespan.append(lifespan)
    return app
