"""`chainfolio move`: copy the lake, the tail and the state store into those of another settings file.

For moving between files, PostgreSQL and object stores. Stop everything that writes first. Every table is compared by a
digest. An interrupted move continues when it is repeated. A place with other rows is refused. The secret of the keys
stays where it is. Two object stores are reached with the same credentials.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Set
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from chainfolio.cli.common import Commands, one_line, settings, show_table
from chainfolio.cli.groups import GROUPS
from chainfolio.errors import BadRequest, needs_extra
from chainfolio.settings_file import load

if TYPE_CHECKING:
    from chainfolio.settings import Settings
    from chainfolio.storage.lake_storage import LakeStorage
    from chainfolio.storage.transfer import CopiedTable, Table

SQLITE = "sqlite:///"


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("move", parents=[common], help=GROUPS["move"], description=__doc__)
    command.add_argument("into", type=Path, help="the settings file that names the new stores")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Copy the stores of one settings file to those of another, and print the rows of each table.

    The exit code is 0.

    Raises:
        BadRequest: the two settings name the same stores, or another data folder.
    """
    source, target = settings(options), load(options.into)
    if _place(source.data_dir) != _place(target.data_dir):
        remedy = "let both settings name the same `data`, and copy the folder where it has to be elsewhere"
        raise BadRequest("into", "the settings name another data folder, which this does not copy", remedy=remedy)
    if _stores(source) == _stores(target):
        remedy = "set `url` under [tail] or [state], or `uri` under [lake] in it"
        raise BadRequest("into", "the settings name the same stores", remedy=remedy)
    done = [asdict(each) for each in _moved(source, target)]
    if options.json:
        one_line({"tables": done})
    else:
        _show(done, options.into)
    return 0


def _stores(settings: Settings) -> dict[str, str]:
    """Return the places of tail, state store and lake, equal for each spelling of one place."""
    return {"tail": _database(settings.tail_url), "state": _database(settings.state_url), "lake": _lake(settings)}


def _lake(settings: Settings) -> str:
    """Return where the lake is. A bucket is another one at another service, unless both belong to Amazon."""
    address = settings.lake_uri.removeprefix("file://").rstrip("/")
    if "://" not in address:
        return _place(Path(address))
    from chainfolio.storage.object_store import ObjectStore

    endpoint = ObjectStore.of(settings.lake.endpoint, settings.lake.region).endpoint
    host = urlsplit(endpoint).netloc.lower()
    return f"{'' if host.endswith('.amazonaws.com') else host} {address}"


def _database(url: str) -> str:
    return _place(Path(url.removeprefix(SQLITE))) if url.startswith(SQLITE) else url


def _place(path: Path) -> str:
    """Return the device and number of a file or folder; if it is missing, its path without links."""
    try:
        found = path.stat()
    except OSError:
        return str(path.resolve())
    return f"{found.st_dev} {found.st_ino}"


def _moved(source: Settings, target: Settings) -> Iterator[CopiedTable]:
    old, new = _stores(source), _stores(target)
    others = {name for name, place in old.items() if new[name] != place}
    if others & {"tail", "lake"}:
        yield from _moved_chains(source, target, others)
    if "state" in others:
        yield from _moved_state(source, target)


def _moved_chains(source: Settings, target: Settings, stores: Set[str]) -> Iterator[CopiedTable]:
    """Copy the tables of those `stores` under the locks of all chains, and yield each result.

    The target's tables are created if missing. Tables that are equal already are yielded, but not copied.

    Raises:
        Locked: A process indexes one of the chains.
        StoreError: The target has other rows, or the source changed; the latter is checked after the last table.
    """
    from chainfolio.storage.tail import Tail

    with closing(Tail(source.tail_url.removeprefix(SQLITE))) as tail, ExitStack() as locks:
        for chain in sorted(source.chains):
            locks.enter_context(tail.lock(chain))
        if "lake" in stores:
            from chainfolio.storage.lake_transfer import transfer_lake

            yield from transfer_lake(_storage(source), _storage(target))
        if "tail" in stores:
            from chainfolio.storage.transfer import tail_tables

            Tail(target.tail_url.removeprefix(SQLITE)).close()  # creates its tables
            yield from _copied("tail", source.tail_url, target.tail_url, tail_tables())


def _storage(settings: Settings) -> LakeStorage:
    """Return the storage of the lake that the settings name."""
    from chainfolio.storage.lake_reader import storage_at

    store = None
    if settings.lake_uri.startswith("s3://"):
        from chainfolio.storage.object_store import ObjectStore

        store = ObjectStore.of(settings.lake.endpoint, settings.lake.region)
    return storage_at(settings.lake_uri, store)


def _moved_state(source: Settings, target: Settings) -> Iterator[CopiedTable]:
    """Copy the tables of the state store and yield each; none if the source is a missing SQLite file."""
    with needs_extra("server", "the store of accounts"):
        from chainfolio.storage.state import open_database
        from chainfolio.storage.transfer import state_tables
    if source.state_url.startswith(SQLITE) and not Path(source.state_url.removeprefix(SQLITE)).exists():
        return  # there are no accounts
    for url in (source.state_url, target.state_url):
        open_database(url).close()  # creates or upgrades its tables
    yield from _copied("state", source.state_url, target.state_url, state_tables())


def _copied(store: str, source: str, target: str, tables: list[Table]) -> Iterator[CopiedTable]:
    from chainfolio.storage.transfer import open_side, transfer

    with closing(open_side(store, source)) as from_side, closing(open_side(store, target)) as to_side:
        yield from transfer(store, from_side, to_side, tables)


def _show(done: list[dict[str, Any]], into: Path) -> None:
    """Print the rows of each table, and what to do next. Only stores that were moved may be deleted."""
    rows = [
        (each["store"], each["table"], f"{each['rows']:,}", "copied" if each["copied"] else "was there")
        for each in done
    ]
    show_table("every table is equal in both", [("store", ""), ("table", ""), ("rows", "right"), ("", "")], rows)
    stores = ", ".join(dict.fromkeys(each["store"] for each in done))
    rest = f" The old stores ({stores}) are unchanged; delete them once it works." if stores else ""
    print(f"Use {into} from now on.{rest}")
