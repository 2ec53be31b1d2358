"""What subscriptions give: daily snapshots, as the addresses of the settings get them, and places among the watched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.assets import Account, account
from chainfolio.settings import Settings

if TYPE_CHECKING:
    from chainfolio.supervisor import Supervisor, Task
    from engine.history import History
    from engine.schedule import Schedule, Wanted
    from indexer.wiring import System
    from storage.state.database import Database

SQLITE = "sqlite:///"
PLACES = "places"  # the task, as logs and metrics name it


def schedule(history: History, supervisor: Supervisor, database: Callable[[], Database | None]) -> Schedule:
    """What takes them. The `database` is asked for each time: None while nobody has made one."""
    from engine.schedule import Schedule

    config, clock = history.system.settings, history.system.seams.clock

    async def wanted() -> Wanted:
        first = date.fromisoformat(config.snapshots.since) if config.snapshots.since else None
        own: dict[Account, date | None] = {account(each): first for each in config.snapshots.addresses}
        subscribed = await asyncio.to_thread(_subscribed, database(), clock.now_us())
        return {**subscribed, **own}

    return Schedule(history, supervisor, wanted)


def _subscribed(database: Database | None, now_us: int) -> dict[Account, date | None]:
    """The accounts that are subscribed to now, each from the day on which that began."""
    if database is None:
        return {}
    from engine.days import day_of
    from storage.state import subscriptions

    found = database.look(lambda tx: subscriptions.running(tx, now_us))
    return {account(address): day_of(began_us) for address, began_us in found.items()}


async def keep_places(system: System, database: Callable[[], Database | None], task: Task) -> None:
    """Give every subscribed address its place among the watched ones, now and again: also those that were paid for when
    the tail could not be written to, and those that the operator added."""
    from engine.schedule import LOOK_EVERY_S
    from indexer import watching

    clock = system.seams.clock
    while True:
        sold = await asyncio.to_thread(_sold, database(), clock.now_us())
        await asyncio.to_thread(watching.keep_sold, system, sold)
        task.progressed()
        await clock.sleep(LOOK_EVERY_S)


def _sold(database: Database | None, now_us: int) -> list[tuple[str, Account, int]]:
    """Return owner, account and end of the subscriptions that have not lapsed."""
    if database is None:
        return []
    from storage.state import subscriptions

    rows = database.look(lambda tx: subscriptions.sold(tx, now_us))
    return [(owner, account(address), until_us) for owner, address, until_us in rows]


def opened(config: Settings) -> Callable[[], Database | None]:
    """The database of the state store, once there is one: a process that only reads it makes none."""
    known: list[Database] = []

    def database() -> Database | None:
        url = config.state_url
        if not known and (not url.startswith(SQLITE) or Path(url.removeprefix(SQLITE)).exists()):
            from storage.state import open_database

            known.append(open_database(url))
        return known[0] if known else None

    return database
