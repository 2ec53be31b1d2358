"""The state store that the settings name, opened under the secret of its keys."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from chainfolio.cli.common import PEPPER, settings
from chainfolio.environment import SystemClock
from chainfolio.errors import StoreError
from chainfolio.settings import Settings
from chainfolio.storage.state import State, accounts, open_database, secret
from chainfolio.storage.state.credentials import OTHER, pepper

SQLITE = "sqlite:///"
LOOK_S = 30.0  # between two looks for accounts


@contextmanager
def opened_state(options: argparse.Namespace) -> Iterator[State]:
    """Open the state store of the command's settings, and close it after the block."""
    state = open_state(settings(options))
    try:
        yield state
    finally:
        state.close()


def open_state(config: Settings, *, accept: bool = False) -> State:
    """Open the state store of the settings with the secret of its keys; both are created if missing.

    With `accept`, the secret that is there becomes that of the store.

    Raises:
        StoreError: The secret of a store with accounts is missing, or is another one and `accept` is False.
    """
    database, path = open_database(config.state_url), config.data_dir / PEPPER
    try:
        has_accounts = database.read(accounts.has_any)
        key = pepper(path, accounts=has_accounts)
        if accept:
            secret.accept(database, key)
        elif has_accounts and not secret.is_own(database, key):
            reason = "is not the secret under which the keys of this store are hashed: every key would be refused"
            raise StoreError("state", f"{path} {reason}", remedy=OTHER)
    except BaseException:  # whatever stopped it: the database is let go of
        database.close()
        raise
    return State(database, key, SystemClock(), random.SystemRandom(), config.limits.hold_s)


def opened_states(config: Settings) -> Callable[[], State | None]:
    """Return a function that opens the state store once it has accounts; it returns None before.

    It looks for accounts every LOOK_S only, and raises StoreError if the store cannot be opened.
    """
    states: list[State] = []
    next_s = 0.0

    def state() -> State | None:
        nonlocal next_s
        if not states and (now_s := time.monotonic()) >= next_s:
            next_s = now_s + LOOK_S
            if _has_accounts(config):
                states.append(open_state(config))
        return states[0] if states else None

    return state


def _has_accounts(config: Settings) -> bool:
    """Return True if the state store has an account; a missing SQLite file is not created."""
    url = config.state_url
    if url.startswith(SQLITE) and not Path(url.removeprefix(SQLITE)).exists():
        return False
    database = open_database(url)
    try:
        return database.read(accounts.has_any)
    finally:
        database.close()
