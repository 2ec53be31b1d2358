"""`chainfolio move`: copy the tail and the state store into those of another settings file.

For moving between SQLite files and PostgreSQL. Stop everything that writes first. Every table is compared by a digest.
An interrupted move continues when it is repeated, and a database with other rows is refused. The lake and the secret of
the keys stay where they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio.cli.common import Commands, one_line, settings, show_table
from chainfolio.cli.groups import GROUPS
from chainfolio.errors import BadRequest, needs_extra
from chainfolio.settings_file import load

if TYPE_CHECKING:
    from chainfolio.settings import Settings
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
        BadRequest: the two settings differ in nothing, or in more than these stores.
    """
    source, target = settings(options), load(options.into)
    if source.lake_uri != target.lake_uri or source.data_dir != target.data_dir:
        remedy = "let both settings name the same `data` and `lake`, and copy the folder where it has to be elsewhere"
        raise BadRequest(
            "into", "the settings name another lake or data folder, which this does not copy", remedy=remedy
        )
    if (source.tail_url, source.state_url) == (target.tail_url, target.state_url):
        raise BadRequest("into", "the settings name the same stores", remedy="set `url` under [tail] or [state] in it")
    done = [asdict(each) for each in _moved(source, target)]
    if options.json:
        one_line({"tables": done})
    else:
        _show(done, options.into)
    return 0


def _moved(source: Settings, target: Settings) -> Iterator[CopiedTable]:
    if source.tail_url != target.tail_url:
        yield from _moved_tail(source, target)
    if source.state_url != target.state_url:
        yield from _moved_state(source, target)


def _moved_tail(source: Settings, target: Settings) -> Iterator[CopiedTable]:
    """Copy the tables of the tail under the locks of all chains; yield the result of each.

    The target's tables are created if missing. Tables that are equal already are yielded, but not copied.

    Raises:
        Locked: A process indexes one of the chains.
        StoreError: The target has other rows, or the source changed; the latter is checked after the last table.
    """
    from chainfolio.storage.tail import Tail
    from chainfolio.storage.transfer import tail_tables

    with closing(Tail(source.tail_url.removeprefix(SQLITE))) as tail, ExitStack() as locks:
        for chain in sorted(source.chains):
            locks.enter_context(tail.lock(chain))
        Tail(target.tail_url.removeprefix(SQLITE)).close()  # creates its tables
        yield from _copied("tail", source.tail_url, target.tail_url, tail_tables())


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
    """Print the rows of each table, and what to do next."""
    rows = [
        (each["store"], each["table"], f"{each['rows']:,}", "copied" if each["copied"] else "was there")
        for each in done
    ]
    show_table("every table is equal in both", [("store", ""), ("table", ""), ("rows", "right"), ("", "")], rows)
    print(f"Use {into} from now on. The old stores are unchanged; delete them once it works.")
