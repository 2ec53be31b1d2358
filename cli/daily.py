"""Of whom daily snapshots are taken: the addresses of the settings, and those that somebody subscribed to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.assets import Account, account
from chainfolio.settings import Settings

if TYPE_CHECKING:
    from chainfolio.supervisor import Supervisor
    from engine.history import History
    from engine.schedule import Schedule, Wanted
    from storage.state.database import Database

SQLITE = "sqlite:///"


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
