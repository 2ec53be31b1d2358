"""What commands share: finding the settings, running a coroutine, printing tables and JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from chainfolio.errors import BadRequest, StoreError
from chainfolio.loop import run_until_done
from chainfolio.printable import harmless
from chainfolio.settings import Settings, load

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from indexer.wiring import System
    from portfolio.document import IssueDocument

Commands = Any  # argparse's own type for a group of commands is private
log = logging.getLogger("chainfolio.prices")
T = TypeVar("T")
HERE = Path("chainfolio.toml")
# What a spreadsheet takes for the beginning of a formula, full-width characters too, and what it does not.
FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
NO_CHAIN = (
    'name a node with --rpc http://…, or add [chains.ethereum] with rpc = ["http://…"] to chainfolio.toml, '
    "or try: chainfolio demo"
)

NO_KIND = "add a chain of its kind to the settings"


def settings_file(options: argparse.Namespace) -> Path | None:
    """The settings file a command runs with; None where there is none, and all is as by default."""
    path = options.config or os.environ.get("CHAINFOLIO_CONFIG")
    return Path(path) if path else HERE if HERE.exists() else None


def settings(options: argparse.Namespace) -> Settings:
    """The settings a command runs with."""
    return load(settings_file(options))


def moment_us(written: str) -> int:
    """A moment in UTC as microseconds."""
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise BadRequest("expires", f"{written!r} is not a moment", remedy="for example 2027-01-01T00:00:00Z") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def parse_day(name: str, written: str) -> date:
    """Return the day that the option `name` has as YYYY-MM-DD; BadRequest if it is none."""
    try:
        if len(written) == 10:
            return date.fromisoformat(written)
    except ValueError:  # a day that no calendar has
        pass
    raise BadRequest(name, f"{written!r} is not a day", remedy="YYYY-MM-DD, for example 2024-02-29")


def moment(at_us: int | None) -> str | None:
    """Microseconds as a moment in UTC."""
    if at_us is None:
        return None
    seconds, us = divmod(at_us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{us // 1000:03d}Z"


def add_rpc(command: argparse.ArgumentParser, *, keeps: bool = False) -> None:
    """The options of commands that can do without settings. One that `keeps` nothing writes no file where there are
    neither settings nor a data folder."""
    command.add_argument(
        "--rpc", action="append", default=[], metavar="URL",
        help="a node to read from instead of those of the settings, of the chain that it serves; may be repeated",
    )  # fmt: skip
    command.add_argument("--explain", action="store_true", help="show on standard error what the nodes were asked")
    command.set_defaults(keeps=keeps)


def with_system(options: argparse.Namespace, work: Callable[[System], Awaitable[T]]) -> T:
    """Run some work on the system of the settings, and let go of everything afterwards."""

    async def main() -> T:
        system = await _system(options)
        try:
            found = await work(system)
            await asyncio.to_thread(_settle_prices, system)
            return found
        finally:
            if getattr(options, "explain", False):
                _explain(system, len(options.rpc))
            await system.close()

    return run_until_done(main())


def _settle_prices(system: System) -> None:
    """Move the prices of final blocks that a command used to the lake: no server may ever run that does it."""
    used = [] if system.keeps_nothing else [chain.key for chain in system.used]
    for key in used:
        if system.tail.has_prices(key):
            from engine.price_store import PriceStore

            try:
                PriceStore(key, system.lake, system.tail).settle_final()
            except StoreError as error:  # they are kept where they are, and the answer is there
                log.warning("%s: prices were not moved to the lake: %s", key, error.message)


async def _system(options: argparse.Namespace) -> System:
    """The system of the settings; with `--rpc` that of the chains which these nodes serve."""
    from indexer.wiring import CONFIGS, System

    config, urls = settings(options), getattr(options, "rpc", [])
    if not urls:
        return System(config)
    from chainfolio.seams import Seams
    from indexer.endpoints import at_endpoints

    seams = Seams()
    elsewhere = config.lake.uri or config.tail.url
    is_new = settings_file(options) is None and not elsewhere and not config.data_dir.exists()
    config = await at_endpoints(config, urls, seams, configs=CONFIGS)
    return System(config, seams, keeps_nothing=is_new and not options.keeps)


def _explain(system: System, named: int) -> None:
    """What each node was asked, on standard error: requests, bytes, calls by method, and reads by function. So many
    nodes were `named` on the command line, and asked once more for the chain that they serve."""
    if named:
        print(f"{counted(named, 'request')} for the chains of the nodes", file=sys.stderr)
    for chain in system.used:
        for each in chain.health():
            size = f"{each.cost.sent_bytes:,} bytes sent, {each.cost.received_bytes:,} received"
            print(f"{chain.key}: {each.endpoint}: {each.requests} requests, {size}", file=sys.stderr)
            for what, counts in (("calls", each.cost.calls), ("reads inside them", each.cost.reads)):
                kinds = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
                shown = ", ".join(f"{name} {count:,}" for name, count in kinds)
                print(f"  {sum(counts.values()):,} {what}: {shown}", file=sys.stderr)


def check_chains(system: System) -> None:
    """Without any chain nothing can be said about an address: nothing is not zero."""
    if not system.settings.chains:
        raise BadRequest("chains", "no chain is configured", remedy=NO_CHAIN)


def one_chain(system: System, named: str | None, accounts: Collection[Account], why: str) -> str:
    """The key of the chain that is asked about accounts: the named one, else the only one of their kinds. BadRequest
    where there are several, which says `why` one only, or where an account is of another kind."""
    check_chains(system)
    kinds = {account.kind for account in accounts}
    if named is not None:
        chain = system.chain(named)
    else:
        chains = [chain for chain in system.account_chains if chain.kind in kinds or not kinds]
        if len(chains) > 1:
            raise BadRequest("chain", why, remedy=f"--chain one of {', '.join(chain.key for chain in chains)}")
        if not chains:
            names = ", ".join(map(str, accounts))
            raise BadRequest("address", f"{names} is an account of no configured chain", remedy=NO_KIND)
        chain = chains[0]
    for account in accounts:
        if account.kind != chain.kind:
            raise BadRequest("address", f"{account} is not an account of {chain.key}")
    return chain.key


def show_json(value: Any) -> None:
    """One JSON document on standard output; msgspec's own types and exact decimals included."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def add_csv(command: argparse.ArgumentParser) -> None:
    """The option of commands that can print their rows for a spreadsheet."""
    command.add_argument("--csv", action="store_true", help="print comma-separated values instead of a table")


def show_csv(columns: Sequence[str], rows: Iterable[Sequence[object]], *, header: bool = True) -> None:
    """Print comma-separated values, numbers exact as they are; None is an empty cell. `header` prints the names of the
    columns first.

    Anybody can name a token like a spreadsheet's formula: such a text gets an apostrophe in front, which spreadsheets
    take for the sign of plain text.
    """
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    if header:
        writer.writerow(columns)
    writer.writerows([_plain(cell) for cell in row] for row in rows)


def show_issues(issues: Iterable[IssueDocument]) -> None:
    """What an answer lacks, on standard error: beside the rows, not among them."""
    for issue in issues:
        print(f"{issue.adapter}: {issue.subject}: {issue.reason}", file=sys.stderr)


def _plain(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    is_formula = cell.startswith(FORMULA) and not NUMBER.fullmatch(cell)
    quote = "'" if is_formula else ""
    return f"{quote}{cell}".replace("\r", " ")  # no reader agrees on it inside a cell


def show_table(title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
    """A table for people: columns are (name, `left` or `right`).

    Empty columns are left out. Where the rest does not fit the terminal (80 columns where there is none) without
    splitting words or numbers, each row is a block of lines.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    kept = [at for at in range(len(columns)) if not rows or any(row[at] for row in rows)]
    columns, rows = [columns[at] for at in kept], [[harmless(row[at]) for at in kept] for row in rows]
    least = [_least(name, side == "right", [row[at] for row in rows]) for at, (name, side) in enumerate(columns)]
    width = shutil.get_terminal_size((80, 24)).columns
    if sum(least) + 3 * len(least) + 1 > width and rows:
        _show_lines(title, [name for name, _ in columns], rows)
        return
    table = Table()
    for (name, side), wide in zip(columns, least, strict=True):
        is_number = side == "right"
        table.add_column(name, justify="right" if is_number else "left", no_wrap=is_number, min_width=wide)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(width=width)
    with console.capture() as shown:  # printed by itself it would end the process where nobody reads it any more
        if title:  # in one piece, however narrow the table is: an address in it is copied
            console.print(Text(title, style="bold"), soft_wrap=True)
        console.print(table)
    print(shown.get(), end="")


def _least(name: str, is_number: bool, cells: Sequence[str]) -> int:
    """The columns of the terminal that a column needs: a number stays in one piece, a text may break between words."""
    from rich.cells import cell_len

    parts = [part for cell in cells for part in (cell.splitlines() if is_number else cell.split())]
    return max(map(cell_len, [*name.split(), *parts]), default=1)


def _show_lines(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A block of lines for each row: the name of each column, and what it holds."""
    wide = max(map(len, names))
    blocks = [
        "\n".join(
            f"{name:<{wide}}  {', '.join(cell.splitlines())}" for name, cell in zip(names, row, strict=True) if cell
        )
        for row in rows
    ]
    print("\n\n".join([*([title] if title else []), *blocks]))


def one_line(value: Any) -> None:
    """One compact JSON line."""
    print(json.dumps(value))


def known(text: str, else_shown: str) -> str:
    """An amount of a document, or what is shown where it is not known."""
    from portfolio.document import UNKNOWN

    return else_shown if text == UNKNOWN else text


def counted(number: int, thing: str) -> str:
    """A number of things, as people write it."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def money(value: str) -> str:
    """A value as people read it: thousands apart, two places; the exact figure is in --json."""
    from decimal import Decimal

    return "-" if known(value, "") == "" else f"{Decimal(value):,.2f}"
