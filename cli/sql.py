"""`chainfolio sql "SELECT …"`: DuckDB over the lake, read-only, in a sandboxed child process."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chainfolio.cli.common import Commands, add_csv, show_csv, show_json, show_table, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.progress_bar import watch
from chainfolio.errors import BadRequest
from chainfolio.storage.comparisons import Comparisons
from chainfolio.storage.downloads import Downloads
from chainfolio.storage.lake_sources import Sources, check_files, missing_bytes, sources, tables_in
from chainfolio.storage.sql_query import run_query
from chainfolio.storage.sql_task import JsonResult, Task
from chainfolio.storage.views import views

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System
    from chainfolio.storage.lake import Lake

# Hex with a capital, as wallets and explorers show addresses, where nothing makes it lower.
MIXED = re.compile(r"(?<!lower\()'(0x(?=[0-9a-f]*[A-F])[0-9a-fA-F]{8,64})'")
TOO_LONG = "ask for less, or raise --seconds"
NUMBERS = ("INT", "DECIMAL", "DOUBLE", "FLOAT")
UNCHECKED_VIEWS = "-- Readers of these views compare no checksums: run `chainfolio check` before an important result."


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("sql", parents=[common], help=GROUPS["sql"], description=__doc__)
    command.add_argument(
        "query", nargs="?", help="one SELECT (- : from standard input); without it: views for your DuckDB"
    )
    add_csv(command)
    command.add_argument("--limit", type=int, default=1000, metavar="N", help="rows at most (default 1000; 0: all)")
    command.add_argument(
        "--unchecked", action="store_true", help="do not compare the files of the tables with their checksums"
    )
    command.add_argument("--seconds", type=int, default=60, metavar="S", help="stop the query after this long")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the rows of a query as a table, --json or --csv, or without a query the SQL of the views.

    A note on standard error says if --limit cut rows off. The exit code is 0.

    Raises:
        BadRequest: for a limit or a time out of range, and for a wrong query.
        CorruptFile: A file of a queried table does not match its checksums.
    """
    if options.limit < 0 or options.seconds < 1:
        raise BadRequest("query", "--limit is at least 0 (all rows), --seconds at least 1")

    if options.query is None:
        tables = with_system(options, lambda system: _sources(system.lake))
        print(UNCHECKED_VIEWS)
        print("\n".join(views(tables.addresses(), tables.unreadable)))
        return 0
    query = sys.stdin.read() if options.query == "-" else options.query
    for literal in dict.fromkeys(MIXED.findall(query)):
        print(f"note: '{literal}' is in no table: they hold '{literal.lower()}', in lower case", file=sys.stderr)
    answer = with_system(options, lambda system: _answer(system, query, options))
    names = [column.name for column in answer.columns]
    if options.json:
        show_json([dict(zip(names, row, strict=True)) for row in answer.rows])
        return 0
    if options.csv:
        show_csv(names, answer.rows)
    else:
        _table(answer)
    if answer.more:
        print(f"only the first {options.limit:,} rows are shown: --limit 0 shows all", file=sys.stderr)
    return 0


async def _sources(lake: Lake) -> Sources:
    return sources(lake)


async def _answer(system: System, query: str, options: argparse.Namespace) -> JsonResult:
    """Run the query over the tables that it names and return its rows.

    The files are compared with their checksums before; with --unchecked they are not, and a note says so. Files of an
    object store are copied here, always compared.
    """
    readable = sources(system.lake, tables_in(query))
    if options.unchecked and system.lake.is_local:
        print("unchecked: no file was compared with its checksums", file=sys.stderr)
    else:
        readable = _checked(system, readable, is_quiet=options.json)
    task = Task(
        query=query,
        folder=readable.folder,
        files=readable.files,
        refused=readable.unreadable,
        limit=options.limit,
        seconds=options.seconds,
    )
    return (await run_query(task, TOO_LONG)).document()


def _checked(system: System, readable: Sources, *, is_quiet: bool) -> Sources:
    """Compare or copy the files of the sources, with a progress bar unless `is_quiet`.

    Raises:
        CorruptFile: A file does not match its checksums.
        StoreError: The object store does not answer, or the folder of copies cannot be written.
    """
    folder = system.settings.data_dir
    parts = system.lake, readable, Comparisons(folder / "compared.json"), Downloads(folder / "downloads")
    title = "checksums" if system.lake.is_local else "download"
    with _progress(title, missing_bytes(*parts), is_quiet=is_quiet) as report:
        return check_files(*parts, report)


@contextmanager
def _progress(title: str, total: int, *, is_quiet: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that adds bytes to a progress bar of `total` bytes.

    With `is_quiet` it shows nothing. The bar is cleared at the end of the block, but not after an error.
    """
    read_bytes, start_s, progress = 0, time.monotonic(), watch(title)

    def report(count: int) -> None:
        nonlocal read_bytes
        read_bytes += count
        if not is_quiet:
            progress(
                read_bytes / max(1, total),
                time.monotonic() - start_s,
                lambda: f"{read_bytes >> 20:,} of {total >> 20:,} MiB",
            )

    yield report
    if read_bytes and not is_quiet:
        progress.clear()


def _table(answer: JsonResult) -> None:
    rows = [["" if cell is None else str(cell) for cell in row] for row in answer.rows]
    sides = ["right" if any(name in column.type for name in NUMBERS) else "" for column in answer.columns]
    names = [column.name for column in answer.columns]
    show_table("", list(zip(names, sides, strict=True)), rows)
