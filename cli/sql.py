"""`chainfolio sql "SELECT …"`: DuckDB over the lake, read-only, in a sandboxed child process."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio.cli.common import Commands, add_csv, show_csv, show_json, show_table, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.progress_bar import watch
from chainfolio.errors import BadRequest, ChainfolioError, MissingDependency, StaleTable, needs_extra
from chainfolio.storage.comparisons import Comparisons
from chainfolio.storage.downloads import Downloads
from chainfolio.storage.views import views
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.parquet import LakeFile

# Hex with a capital, as wallets and explorers show addresses, where nothing makes it lower.
MIXED = re.compile(r"(?<!lower\()'(0x(?=[0-9a-f]*[A-F])[0-9a-fA-F]{8,64})'")
TOO_LONG = "ask for less, or raise --seconds"
WORD = re.compile(r"[a-z0-9_]+")
BEHIND_VALIDATOR_REWARDS = {"validator_rewards", "proposals", "blocks", "transactions"}
NAME_IT = "write its name in the query, in a comment if nowhere else"
UNCHECKED_VIEWS = "-- Readers of these views compare no checksums: run `chainfolio check` before an important result."
NO_KERNEL = "run it on Linux or macOS, or print views for a DuckDB of your own: chainfolio sql"


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
        absolute = {name: list(map(_absolute, files)) for name, files in tables.files.items()}
        print(UNCHECKED_VIEWS)
        print("\n".join(views(absolute, tables.unreadable)))
        return 0
    query = sys.stdin.read() if options.query == "-" else options.query
    for literal in dict.fromkeys(MIXED.findall(query)):
        print(f"note: '{literal}' is in no table: they hold '{literal.lower()}', in lower case", file=sys.stderr)
    tables = with_system(options, lambda system: _compared_sources(system, query, options))
    answer = ask(query, tables, limit=options.limit, seconds=options.seconds)
    if options.json:
        show_json([dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]])
        return 0
    if options.csv:
        show_csv(answer["columns"], answer["rows"])
    else:
        _table(answer)
    if answer["more"]:
        print(f"only the first {options.limit:,} rows are shown: --limit 0 shows all", file=sys.stderr)
    return 0


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of each table that can be read, and for every other table the reason why it cannot."""

    files: dict[str, list[str]] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    entries: dict[str, list[LakeFile]] = field(default_factory=dict)


def sources(lake: Lake, names: Collection[str] = TABLES.keys()) -> Sources:
    """Return the files of some tables, by default of all.

    Other tables, and those of another format, are listed as refused: a query that reads one of them is an error.
    """
    readable = Sources()
    for name, table in TABLES.items():
        try:
            if name not in names:
                readable.unreadable[name] = f"the query names no {name}: {NAME_IT}"
            elif lake.exists(table):
                entries = readable.entries[name] = lake.entries(table)
                readable.files[name] = [lake.address(table, entry) for entry in entries]
        except StaleTable as error:
            readable.unreadable[name] = f"{error.message}: {error.remedy}"
    return readable


def tables_in(query: str) -> set[str]:
    """Return the tables whose name or macro is a word of the query, in strings and comments too."""
    identifiers = set(WORD.findall(query.lower()))
    macros = {f"{name}_of": {name} for name in TABLES} | {"validator_rewards_of": BEHIND_VALIDATOR_REWARDS}
    return (identifiers & TABLES.keys()).union(*(tables for macro, tables in macros.items() if macro in identifiers))


async def _sources(lake: Lake) -> Sources:
    return sources(lake)


async def _compared_sources(system: System, query: str, options: argparse.Namespace) -> Sources:
    """Compare the files of the queried tables with their checksums and return them; raise CorruptFile.

    With --unchecked they are not compared, and a note says so; files of an object store are copied here, always
    compared.
    """
    readable = sources(system.lake, tables_in(query))
    files = [(TABLES[name], entry) for name, entries in readable.entries.items() for entry in entries]
    if not system.lake.is_local:  # always compared: a copy is made once
        return downloaded(system, readable, is_quiet=options.json)
    if options.unchecked:
        print("unchecked: no file was compared with its checksums", file=sys.stderr)
        return readable
    comparisons = Comparisons(system.settings.data_dir / "compared.json")
    pending = comparisons.pending(system.lake, files)
    with _progress("checksums", sum(file.size for _, file in pending), is_quiet=options.json) as report:
        comparisons.compare(system.lake, pending, report)
    return readable


def downloaded(system: System, readable: Sources, *, is_quiet: bool) -> Sources:
    """Copy the files of an object store to this machine; return the sources with their copies.

    Args:
        is_quiet: Show no progress on standard error.

    Raises:
        CorruptFile: A file does not match its checksums.
        StoreError: The object store does not answer, or the folder of copies cannot be written.
    """
    downloads = Downloads(Path(_absolute(str(system.settings.data_dir / "downloads"))))
    missing = [
        file.size
        for name, entries in readable.entries.items()
        for file in entries
        if not downloads.path(TABLES[name], file).exists()
    ]
    with _progress("download", sum(missing), is_quiet=is_quiet) as report:
        for name, entries in readable.entries.items():
            downloads.fetch(system.lake, TABLES[name], entries, report)
    copies = {
        name: [str(downloads.path(TABLES[name], file)) for file in entries]
        for name, entries in readable.entries.items()
    }
    return replace(readable, files=copies)


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


def _absolute(file: str) -> str:
    """Return a local path as absolute; a URI stays as it is."""
    return file if "://" in file else os.path.abspath(file)


def _table(answer: dict[str, Any]) -> None:
    rows = [["" if cell is None else str(cell) for cell in row] for row in answer["rows"]]
    sides = ["right" if kind == "number" else "" for kind in answer["kinds"]]
    show_table("", list(zip(answer["columns"], sides, strict=True)), rows)


def ask(query: str, sources: Sources, *, limit: int, seconds: int) -> dict[str, Any]:
    """Run the query in a child process with the files and without our environment; return its answer.

    Args:
        limit: The most rows to return; 0 for all.
        seconds: The longest time of the query.

    Returns:
        `columns`, `kinds` ("number" or "text") by column, `rows`, and `more`: True if `limit` left out rows.

    Raises:
        BadRequest: The query is wrong, took too long, or reads a refused table.
        ChainfolioError: The child process ended without an answer.
        MissingDependency: DuckDB is not installed, or this system cannot make the child process read-only.
    """
    with needs_extra("sql", "a query in SQL"):
        if find_spec("duckdb") is None:  # the child imports it, and not this process
            raise ModuleNotFoundError(name="duckdb")
    environment = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with tempfile.TemporaryDirectory(prefix="chainfolio-") as folder:
        probe = Path(folder, "probe")
        probe.write_text("The child tries to change this file, and must not succeed.\n")
        task = {
            "query": query,
            "files": sources.files,
            "refused": sources.unreadable,
            "limit": limit,
            "seconds": seconds,
            "probe": str(probe),
        }
        try:
            child = subprocess.run(
                [sys.executable, "-m", "chainfolio.storage.sandbox"],
                input=json.dumps(task),
                capture_output=True,
                text=True,
                timeout=seconds + 10,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BadRequest("query", f"it ran for more than {seconds} s", remedy=TOO_LONG) from None
    try:
        answer: dict[str, Any] = json.loads(child.stdout)
    except ValueError:
        raise ChainfolioError("the query ended without an answer: it needed too much memory", remedy=TOO_LONG) from None
    if "possible" in answer:
        raise MissingDependency(
            f"this system cannot make a process read-only: it could {answer['possible'][0]}", remedy=NO_KERNEL
        )
    if "error" in answer:
        raise BadRequest("query", answer["error"], remedy=TOO_LONG if answer["error"].startswith("INTERRUPT") else "")
    return answer
