"""The state store that the settings name, opened under the secret of its keys."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from contextlib import contextmanager

from chainfolio.cli.common import settings
from chainfolio.environment import SystemClock
from chainfolio.errors import StoreError
from chainfolio.settings import Settings
from chainfolio.storage.state import State, accounts, open_database, secret
from chainfolio.storage.state.credentials import OTHER, pepper

PEPPER = "pepper"


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
