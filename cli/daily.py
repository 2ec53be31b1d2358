"""Work for subscribed addresses: daily snapshots, and places among the watched addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.assets import Account, account
from chainfolio.engine.history.day_blocks import day_of
from chainfolio.engine.history.schedule import Schedule
from chainfolio.indexer import watching
from chainfolio.settings import Settings
from chainfolio.storage.state import jobs, open_database, subscriptions

if TYPE_CHECKING:
    from chainfolio.engine.history.past_days import History
    from chainfolio.engine.history.schedule import FirstDays
    from chainfolio.indexer.schedule import Job, JobSchedule
    from chainfolio.indexer.wiring import System
    from chainfolio.storage.state.database import Database

SQLITE = "sqlite:///"
PLACES = "places"  # the name of the job


def schedule(history: History, job_schedule: JobSchedule, database: Callable[[], Database | None]) -> Schedule:
    """Return the schedule of daily snapshots, of configured and subscribed addresses; the settings win.

    `database` is called each time and may return None.
    """
    config, clock = history.system.settings, history.system.environment.clock

    async def requested_accounts() -> FirstDays:
        first = date.fromisoformat(config.snapshots.since) if config.snapshots.since else None
        addresses: dict[Account, date | None] = {account(each): first for each in config.snapshots.addresses}
        subscribed = await asyncio.to_thread(_subscribed, database(), clock.now_us())
        return {**subscribed, **addresses}

    return Schedule(history, job_schedule, requested_accounts)


def _subscribed(database: Database | None, now_us: int) -> dict[Account, date | None]:
    """Return the accounts with a subscription now and the day it began; empty without a database."""
    if database is None:
        return {}

    subscribed = database.read(lambda tx: subscriptions.running(tx, now_us))
    return {account(address): day_of(began_us) for address, began_us in subscribed.items()}


async def keep_places(system: System, database: Callable[[], Database | None]) -> None:
    """Keep a watched place for every subscribed address.

    This covers addresses that were paid for while the tail was not writable, and those that the operator added.
    """
    sold = await asyncio.to_thread(_sold, database(), system.environment.clock.now_us())
    await asyncio.to_thread(watching.watch_subscriptions, system, sold)


def _sold(database: Database | None, now_us: int) -> list[tuple[str, Account, int]]:
    """Return owner, account and end of the subscriptions that have not lapsed."""
    if database is None:
        return []

    rows = database.read(lambda tx: subscriptions.sold(tx, now_us))
    return [(owner, account(address), until_us) for owner, address, until_us in rows]


def recorder(database: Callable[[], Database | None]) -> Callable[[Job], Awaitable[None]]:
    """Return a function that stores the last run of a job, if there is a state store."""

    async def record(job: Job) -> None:
        if (store := database()) is None or job.began_us is None:
            return
        is_ended, duration_us = job.is_ended, int(job.duration_s * 1_000_000)
        last = (job.ended_us, duration_us, job.error) if is_ended else (None, None, "")
        run = jobs.JobRun(job.name, job.chain, job.began_us, *last)
        await store.write_async(lambda tx: jobs.store(tx, run))

    return record


def opened(config: Settings) -> Callable[[], Database | None]:
    """Return a function that opens the state store's database once; None while its SQLite file is missing."""
    databases: list[Database] = []

    def database() -> Database | None:
        url = config.state_url
        if not databases and (not url.startswith(SQLITE) or Path(url.removeprefix(SQLITE)).exists()):
            databases.append(open_database(url))
        return databases[0] if databases else None

    return database
