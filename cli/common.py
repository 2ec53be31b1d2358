"""What commands share: finding the settings, running a coroutine, printing tables and JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from chainfolio.errors import BadRequest
from chainfolio.settings import Settings, load

if TYPE_CHECKING:
    from indexer.wiring import System
    from storage.state import State

Commands = Any  # argparse's own type for a group of commands is private
T = TypeVar("T")
HERE = Path("chainfolio.toml")
NO_CHAIN = 'add [chains.ethereum] with rpc = ["http://…"] to chainfolio.toml, or try: chainfolio demo'


def settings_file(options: argparse.Namespace) -> Path | None:
    """The settings file a command runs with; None where there is none, and all is as by default."""
    given = options.config or os.environ.get("CHAINFOLIO_CONFIG")
    return Path(given) if given else HERE if HERE.exists() else None


def settings(options: argparse.Namespace) -> Settings:
    """The settings a command runs with."""
    return load(settings_file(options))


@contextmanager
def kept(options: argparse.Namespace) -> Iterator[State]:
    """The state store of the settings a command runs with, let go of afterwards."""
    from cli.serve import open_state

    state = open_state(settings(options))
    try:
        yield state
    finally:
        state.close()


def moment_us(written: str) -> int:
    """A moment in UTC as microseconds."""
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise BadRequest("expires", f"{written!r} is not a moment", cure="for example 2027-01-01T00:00:00Z") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def moment(at_us: int | None) -> str | None:
    """Microseconds as a moment in UTC."""
    if at_us is None:
        return None
    seconds, us = divmod(at_us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{us // 1000:03d}Z"


def with_system(options: argparse.Namespace, work: Callable[[System], Awaitable[T]]) -> T:
    """Run some work on the system of the settings, and let go of everything afterwards."""
    from indexer.wiring import System

    async def run() -> T:
        system = System(settings(options))
        try:
            return await work(system)
        finally:
            await system.close()

    return asyncio.run(run())


def check_chains(system: System) -> None:
    """Without any chain nothing can be said about an address: nothing is not zero."""
    if not system.settings.chains:
        raise BadRequest("chains", "no chain is configured", cure=NO_CHAIN)


def one_chain(system: System, named: str | None, why: str) -> str:
    """The key of the chain that is asked: the named one, else the only one there is; BadRequest says `why` one only."""
    check_chains(system)
    if named is not None:
        return system.chain(named).key
    keys = sorted(system.settings.chains)
    if len(keys) > 1:
        raise BadRequest("chain", why, cure=f"--chain one of {', '.join(keys)}")
    return keys[0]


def show_json(value: Any) -> None:
    """One JSON document on standard output; msgspec's own types and exact decimals included."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def show_table(title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
    """A table for people: columns are (name, `left` or `right`)."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title) if title else None, title_justify="left", title_style="bold")
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)


def one_line(value: Any) -> None:
    """One compact JSON line."""
    print(json.dumps(value))
