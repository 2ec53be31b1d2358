"""Every store and file of the settings, opened: what `chainfolio doctor` says of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio.chain_settings import masked
from chainfolio.errors import ChainfolioError, StoreError
from chainfolio.tables import TABLES
from engine.wiring import price_sections

if TYPE_CHECKING:
    from indexer.wiring import System

SQLITE = "sqlite:///"


def examined(system: System) -> list[dict[str, Any]]:
    """A row for each store: where it is, and what is wrong with it."""
    config = system.settings
    return [
        _row("lake", config.lake_uri, lambda: _lake(system)),
        _row("tail", config.tail_url, lambda: _tail(system)),
        _row("state", config.state_url, lambda: _state(system)),
    ]


def files(system: System) -> list[dict[str, Any]]:
    """A row for each file and folder that the settings name; those of chains are in the rows of their endpoints."""
    config = system.settings
    return [
        *([_row("prices_file", config.prices_file, partial(price_sections, system))] if config.prices_file else []),
        *([_row("protocols", config.protocols, lambda: _folder(config.protocols))] if config.protocols else []),
    ]


def _row(name: str, place: str, look: Callable[[], object]) -> dict[str, Any]:
    where = place if "://" not in place or place.startswith(SQLITE) else masked(place)
    row = {"store": name, "place": where.removeprefix(SQLITE), "ok": True, "problem": "", "remedy": ""}
    try:
        look()
    except ChainfolioError as error:
        return row | {"ok": False, "problem": error.message, "remedy": error.remedy}
    except OSError as error:
        return row | {"ok": False, "problem": f"{error.filename}: {error.strerror}"}
    return row


def _lake(system: System) -> None:
    """Every table can be read, and what the tail says of a chain is there."""
    from indexer import consistency

    for table in TABLES.values():
        system.lake.count(table)
    for key in system.settings.chains:
        consistency.check(system.lake, system.tail, key)


def _tail(system: System) -> None:
    for key in system.settings.chains or ("",):  # it is opened by asking, whoever is asked for
        system.tail.top(key)


def _state(system: System) -> None:
    """The state store answers, and the right secret of its keys is there. A store that nobody made yet stays unmade."""
    from cli.state_store import PEPPER, open_state

    config, secret = system.settings, system.settings.data_dir / PEPPER
    path = Path(config.state_url.removeprefix(SQLITE))
    if config.state_url.startswith(SQLITE) and not path.exists():
        if secret.exists():
            remedy = f"put {path.name} back from the backup, or delete {secret} to begin without accounts"
            raise StoreError("state", f"{path} is missing, although {secret} is there", remedy=remedy)
        return
    open_state(config).close()


def _folder(written: str) -> None:
    if not Path(written).is_dir():
        raise StoreError("protocols", f"there is no folder {written}", remedy="make it, or correct `protocols`")
