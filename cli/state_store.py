"""The state store that the settings name, opened under the secret of its keys."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chainfolio.settings import Settings
from cli.common import settings

if TYPE_CHECKING:
    from storage.state import State

PEPPER = "pepper"


@contextmanager
def kept(options: argparse.Namespace) -> Iterator[State]:
    """The state store of the settings a command runs with, let go of afterwards."""
    state = open_state(settings(options))
    try:
        yield state
    finally:
        state.close()


def open_state(config: Settings, *, accept: bool = False) -> State:
    """The state store of the settings, with the secret of its keys; StoreError where the secret was lost, or is another
    one and this one is not to be accepted from now on."""
    import random

    from chainfolio.errors import StoreError
    from chainfolio.seams import SystemClock
    from storage.state import State, accounts, open_database, secret
    from storage.state.credentials import OTHER, pepper

    database, path = open_database(config.state_url), config.data_dir / PEPPER
    try:
        has_accounts = database.look(accounts.anybody)
        key = pepper(path, accounts=has_accounts)
        if accept:
            secret.accept(database, key)
        elif has_accounts and not secret.is_own(database, key):
            words = "is not the secret under which the keys of this store are hashed: every key would be refused"
            raise StoreError("state", f"{path} {words}", remedy=OTHER)
    except BaseException:  # whatever stopped it: the database is let go of
        database.close()
        raise
    return State(database, key, SystemClock(), random.SystemRandom(), config.limits.hold_s)
