"""Every store and file of the settings, opened: what `chainfolio doctor` says of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio.chain_settings import masked
from chainfolio.cli.common import PEPPER
from chainfolio.engine.wiring import price_sections
from chainfolio.errors import ChainfolioError, StoreError, needs_extra
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System

SQLITE = "sqlite:///"


def examined(system: System) -> list[dict[str, Any]]:
    """Return a row for each store: its address, and its problem if it cannot be used."""
    config = system.settings
    return [
        _row("lake", config.lake_uri, lambda: _lake(system)),
        _row("tail", config.tail_url, lambda: _tail(system)),
        _row("state", config.state_url, lambda: _state(system)),
    ]


def files(system: System) -> list[dict[str, Any]]:
    """Return a row for each file and folder in the settings, except those of chains."""
    config = system.settings
    return [
        *([_row("prices_file", config.prices_file, partial(price_sections, system))] if config.prices_file else []),
        *([_row("protocols", config.protocols, lambda: _folder(config.protocols))] if config.protocols else []),
    ]


def _row(name: str, address: str, check: Callable[[], object]) -> dict[str, Any]:
    """Return the report row of a store; its problem if `check` raises a typed error or an OSError.

    Keys are `store`, `place` (the address without secrets), `ok`, `problem` and `remedy`.
    """
    masked_address = address if "://" not in address or address.startswith(SQLITE) else masked(address)
    row = {"store": name, "place": masked_address.removeprefix(SQLITE), "ok": True, "problem": "", "remedy": ""}
    try:
        check()
    except ChainfolioError as error:
        return row | {"ok": False, "problem": error.message, "remedy": error.remedy}
    except OSError as error:
        return row | {"ok": False, "problem": f"{error.filename}: {error.strerror}"}
    return row


def _lake(system: System) -> None:
    """Raise the error of the first table that cannot be read, or of a chain whose lake and tail differ."""
    from chainfolio.indexer import consistency

    for table in TABLES.values():
        system.lake.count(table)
    for key in system.settings.chains:
        consistency.check(system.lake, system.tail, key)


def _tail(system: System) -> None:
    for key in system.settings.chains or ("",):  # the first read opens it
        system.tail.top(key)


def _state(system: System) -> None:
    """Open the state store and check the secret of its keys. A store that does not exist is not created.

    Raises StoreError if the secret is wrong or one of the two is missing, MissingDependency without the extra `server`.
    """
    config, secret = system.settings, system.settings.data_dir / PEPPER
    path = Path(config.state_url.removeprefix(SQLITE))
    if config.state_url.startswith(SQLITE) and not path.exists():
        if secret.exists():
            remedy = f"put {path.name} back from the backup, or delete {secret} to begin without accounts"
            raise StoreError("state", f"{path} is missing, although {secret} is there", remedy=remedy)
        return
    with needs_extra("server", "the store of accounts"):
        from chainfolio.cli.state_store import open_state
    open_state(config).close()


def _folder(path: str) -> None:
    if not Path(path).is_dir():
        raise StoreError("protocols", f"there is no folder {path}", remedy="make it, or correct `protocols`")
