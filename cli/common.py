"""Functions that commands share: settings, running a coroutine, tables, CSV and JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from chainfolio.errors import BadRequest
from chainfolio.loop import run_until_done
from chainfolio.printable import harmless, spreadsheet_text
from chainfolio.settings import Settings
from chainfolio.settings_file import load

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System
    from chainfolio.portfolio.document import IssueDocument

Commands = Any  # argparse's own type for a group of commands is private
T = TypeVar("T")
HERE = Path("chainfolio.toml")
PEPPER = "pepper"  # the file with the secret of the hashes of keys


def settings_file(options: argparse.Namespace) -> Path | None:
    """Return the settings file of a command, or None for default settings.

    It is that of --config, else that of CHAINFOLIO_CONFIG (both unchecked), else `chainfolio.toml` here if it exists.
    """
    path = options.config or os.environ.get("CHAINFOLIO_CONFIG")
    return Path(path) if path else HERE if HERE.exists() else None


def settings(options: argparse.Namespace) -> Settings:
    """Load the settings of a command; defaults without a file.

    Raises BadSettings if the file is wrong or missing.
    """
    return load(settings_file(options))


def moment_us(text: str) -> int:
    """Return a time in UTC as microseconds. Raises BadRequest if the text is no ISO 8601 time."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest("expires", f"{text!r} is not a moment", remedy="for example 2027-01-01T00:00:00Z") from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(time.timestamp()) * 1_000_000 + time.microsecond


def utc_time(at_us: int | None) -> str | None:
    """Format microseconds since 1970 as a UTC time; None for None."""
    if at_us is None:
        return None
    seconds, us = divmod(at_us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{us // 1000:03d}Z"


def add_rpc(command: argparse.ArgumentParser, *, keeps: bool = False) -> None:
    """Add the options of commands that work without settings: `--rpc` and `--explain`.

    A command without `keeps` writes no file if there are neither settings nor a data folder; `keeps` becomes a default
    of the command's options.
    """
    command.add_argument(
        "--rpc",
        action="append",
        default=[],
        metavar="URL",
        help="a node to read from instead of those of the settings, of the chain that it serves; may be repeated",
    )
    command.add_argument("--explain", action="store_true", help="show on standard error what the nodes were asked")
    command.set_defaults(keeps=keeps)


def with_system(
    options: argparse.Namespace, work: Callable[[System], Awaitable[T]], *, shares_answers: bool = False
) -> T:
    """Run some work on the system of the settings, close it afterwards, and return the work's result.

    Prices that the work read are stored before; --explain is shown also after an error.

    Args:
        options: Of the command.
        work: Gets the system.
        shares_answers: Heads and reads at a block that another command made within the last minute are used again.
    """

    async def main() -> T:
        system = await _system(options)
        system.shares_answers = shares_answers
        try:
            result = await work(system)
            if system.used_chains:
                from chainfolio.engine.requests.portfolios import settle_prices

                await asyncio.to_thread(settle_prices, system)
            return result
        finally:
            if getattr(options, "explain", False):
                _explain(system, len(options.rpc))
            await system.close()

    return run_until_done(main())


async def _system(options: argparse.Namespace) -> System:
    """Return the system of the settings, or with `--rpc` of the chains that these nodes serve.

    With `--rpc` and no settings or data of an earlier run, nothing is stored, unless the command keeps data.
    """
    from chainfolio.indexer.wiring import CONFIGS, System

    config, urls = settings(options), getattr(options, "rpc", [])
    if not urls:
        return System(config)
    from chainfolio.environment import Environment
    from chainfolio.indexer.endpoints import at_endpoints, family_kinds

    environment = Environment()
    elsewhere = config.lake.uri or config.tail.url
    is_new = settings_file(options) is None and not elsewhere and not config.data_dir.exists()
    config = await at_endpoints(config, urls, environment, configs=CONFIGS)
    keeps_nothing = is_new and not options.keeps
    return System(config, environment, keeps_nothing=keeps_nothing, kinds=family_kinds(config))


def _explain(system: System, node_count: int) -> None:
    """Print the requests, bytes, calls and reads of each node to standard error.

    `node_count` nodes were named on the command line; each was asked once for its chain.
    """
    if node_count:
        print(f"{count_text(node_count, 'request')} for the chains of the nodes", file=sys.stderr)
    for chain in system.used_chains:
        for each in chain.health():
            size = f"{each.cost.sent_bytes:,} bytes sent, {each.cost.received_bytes:,} received"
            print(f"{chain.key}: {each.endpoint}: {each.requests} requests, {size}", file=sys.stderr)
            for title, counts in (("calls", each.cost.calls), ("reads inside them", each.cost.reads)):
                kinds = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
                counts_text = ", ".join(f"{name} {count:,}" for name, count in kinds)
                print(f"  {sum(counts.values()):,} {title}: {counts_text}", file=sys.stderr)


def show_json(value: Any) -> None:
    """Print one JSON document, indented; types of msgspec and exact decimals are allowed."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def add_csv(command: argparse.ArgumentParser) -> None:
    """Add the option `--csv`."""
    command.add_argument("--csv", action="store_true", help="print comma-separated values instead of a table")


def show_csv(columns: Sequence[str], rows: Iterable[Sequence[object]], *, header: bool = True) -> None:
    """Print comma-separated values with exact numbers; None is an empty cell.

    A token's name may look like a formula. Such a text gets an apostrophe in front, which spreadsheets take for plain
    text. `header` prints the names of the columns first.
    """
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    if header:
        writer.writerow(columns)
    writer.writerows([_plain(cell) for cell in row] for row in rows)


def show_issues(issues: Iterable[IssueDocument]) -> None:
    """Print the issues of an answer to standard error, so that they do not mix with its rows."""
    for issue in issues:
        print(f"{issue.adapter}: {issue.subject}: {issue.reason}", file=sys.stderr)


def _plain(cell: object) -> object:
    return spreadsheet_text(cell) if isinstance(cell, str) else cell


def show_table(title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: columns are (name, `left` or `right`).

    Columns that are empty in every row are left out; without rows, all are shown. Where the rest does not fit the
    terminal (80 columns where there is none) without splitting words or numbers, each row is a block of lines.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    visible = [at for at in range(len(columns)) if not rows or any(row[at] for row in rows)]
    columns, rows = [columns[at] for at in visible], [[harmless(row[at]) for at in visible] for row in rows]
    min_widths = [
        _min_width(name, side == "right", [row[at] for row in rows]) for at, (name, side) in enumerate(columns)
    ]
    width = shutil.get_terminal_size((80, 24)).columns
    if sum(min_widths) + 3 * len(min_widths) + 1 > width and rows:
        _show_lines(title, [name for name, _ in columns], rows)
        return
    table = Table()
    for (name, side), wide in zip(columns, min_widths, strict=True):
        is_number = side == "right"
        table.add_column(name, justify="right" if is_number else "left", no_wrap=is_number, min_width=wide)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(width=width)
    with console.capture() as capture:  # rich would end the process on a closed pipe
        if title:  # in one piece, however narrow the table is: an address in it is copied
            console.print(Text(title, style="bold"), soft_wrap=True)
        console.print(table)
    print(capture.get(), end="")


def _min_width(name: str, is_number: bool, cells: Sequence[str]) -> int:
    """Return the minimum width of a column: a number stays in one piece, a text may break between words."""
    from rich.cells import cell_len

    parts = [part for cell in cells for part in (cell.splitlines() if is_number else cell.split())]
    return max(map(cell_len, [*name.split(), *parts]), default=1)


def _show_lines(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a block of lines for each row: the name of each column and its cell; empty cells are left out."""
    wide = max(map(len, names))
    blocks = [
        "\n".join(
            f"{name:<{wide}}  {', '.join(cell.splitlines())}" for name, cell in zip(names, row, strict=True) if cell
        )
        for row in rows
    ]
    print("\n\n".join([*([title] if title else []), *blocks]))


def one_line(value: Any) -> None:
    """Print a value as one compact line of JSON."""
    print(json.dumps(value))


def known_or(text: str, else_shown: str) -> str:
    """Return an amount of a document, or `else_shown` if it is unknown."""
    from chainfolio.portfolio.document import UNKNOWN

    return else_shown if text == UNKNOWN else text


def count_text(number: int, thing: str) -> str:
    """Format a count with its noun, for example `2 values`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def money(value: str) -> str:
    """Return a value with thousands separators and two decimal places, `-` if it is unknown."""
    return "-" if known_or(value, "") == "" else f"{Decimal(value):,.2f}"
