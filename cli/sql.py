"""`chainfolio sql "SELECT …"`: DuckDB over the lake, read-only, in a child process that can reach nothing else."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio.errors import BadRequest, ChainfolioError, Missing, StaleTable
from chainfolio.tables import TABLES
from cli.common import Commands, add_csv, counted, show_csv, show_json, show_table, with_system
from cli.progress_bar import watch

if TYPE_CHECKING:
    from indexer.wiring import System
    from storage.lake import Lake
    from storage.parquet import Written

# Hex with a capital, as wallets and explorers show addresses, where nothing makes it lower.
MIXED = re.compile(r"(?<!lower\()'(0x(?=[0-9a-f]*[A-F])[0-9a-fA-F]{8,64})'")
TOO_LONG = "ask for less, or raise --seconds"
WORD = re.compile(r"[a-z0-9_]+")
BEHIND_VALIDATOR_REWARDS = {"validator_rewards", "proposals", "blocks", "transactions"}
NAME_IT = "write its name in the query, in a comment if nowhere else"
ADD_CHECKSUMS = "chainfolio check --add-checksums"
UNCHECKED_VIEWS = "-- Readers of these views compare no checksums: run `chainfolio check` before an important result."
NO_KERNEL = "run it on Linux or macOS, or print views for a DuckDB of your own: chainfolio sql"


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("sql", parents=[common], help="ask the lake in SQL", description=__doc__)
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
    """Run the command."""
    if options.limit < 0 or options.seconds < 1:
        raise BadRequest("query", "--limit is at least 0 (all rows), --seconds at least 1")

    if options.query is None:
        from storage.views import views

        tables = with_system(options, lambda system: _sources(system.lake))
        absolute = {name: list(map(_absolute, files)) for name, files in tables.files.items()}
        print(UNCHECKED_VIEWS)
        print("\n".join(views(absolute, tables.refused)))
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
    refused: dict[str, str] = field(default_factory=dict)
    entries: dict[str, list[Written]] = field(default_factory=dict)


def sources(lake: Lake, names: Collection[str] = TABLES.keys()) -> Sources:
    """Return the files of some tables, by default of all. Tables that are not named, and those of another release, are
    refused: a query that reads one of them is an error."""
    readable = Sources()
    for name, table in TABLES.items():
        try:
            if name not in names:
                readable.refused[name] = f"the query names no {name}: {NAME_IT}"
            elif lake.exists(table):
                entries = readable.entries[name] = lake.entries(table)
                readable.files[name] = [lake.address(table, entry) for entry in entries]
        except StaleTable as error:
            readable.refused[name] = f"{error.message}: {error.remedy}"
    return readable


def tables_in(query: str) -> set[str]:
    """Return the tables whose names, or whose macros' names, are words of a query, in strings and comments too."""
    words = set(WORD.findall(query.lower()))
    macros = {f"{name}_of": {name} for name in TABLES} | {"validator_rewards_of": BEHIND_VALIDATOR_REWARDS}
    return (words & TABLES.keys()).union(*(tables for macro, tables in macros.items() if macro in words))


async def _sources(lake: Lake) -> Sources:
    return sources(lake)


async def _compared_sources(system: System, query: str, options: argparse.Namespace) -> Sources:
    """Return the files of the tables that a query names, once they match their checksums. Raises Damaged."""
    readable = sources(system.lake, tables_in(query))
    files = [(TABLES[name], entry) for name, entries in readable.entries.items() for entry in entries]
    if options.unchecked:
        print("unchecked: no file was compared with its checksums", file=sys.stderr)
        return readable
    if count := sum(not file.is_summed for _, file in files):
        print(f"{counted(count, 'file')} without checksums, of an older release: {ADD_CHECKSUMS}", file=sys.stderr)
    if not system.lake.is_local:  # the child cannot read an object store
        return readable
    from storage.comparisons import Comparisons

    comparisons = Comparisons(system.settings.data_dir / "compared.json")
    pending = comparisons.pending(system.lake, files)
    total, done, start_s, shown = sum(file.size for _, file in pending), 0, time.monotonic(), watch("checksums")

    def report(count: int) -> None:
        nonlocal done
        done += count
        if not options.json:
            shown(done / max(1, total), time.monotonic() - start_s, lambda: f"{done >> 20:,} of {total >> 20:,} MiB")

    comparisons.compare(system.lake, pending, report)
    if done and not options.json:
        shown.clear()
    return readable


def _absolute(file: str) -> str:
    """The address of a file that holds in every folder."""
    return file if "://" in file else os.path.abspath(file)


def _table(answer: dict[str, Any]) -> None:
    rows = [["" if cell is None else str(cell) for cell in row] for row in answer["rows"]]
    sides = ["right" if kind == "number" else "" for kind in answer["kinds"]]
    show_table("", list(zip(answer["columns"], sides, strict=True)), rows)


def ask(query: str, sources: Sources, *, limit: int, seconds: int) -> dict[str, Any]:
    """The answer of a child process that gets the query, the files and nothing of this process's environment."""
    environment = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with tempfile.TemporaryDirectory(prefix="chainfolio-") as folder:
        probe = Path(folder, "probe")
        probe.write_text("The child tries to change this file, and must not succeed.\n")
        task = {
            "query": query, "files": sources.files, "refused": sources.refused, "limit": limit, "seconds": seconds,
            "probe": str(probe),
        }  # fmt: skip
        try:
            child = subprocess.run(
                [sys.executable, "-m", "storage.sandbox"], input=json.dumps(task), capture_output=True, text=True,
                timeout=seconds + 10, env=environment, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise BadRequest("query", f"it ran for more than {seconds} s", remedy=TOO_LONG) from None
    try:
        answer: dict[str, Any] = json.loads(child.stdout)
    except ValueError:
        raise ChainfolioError("the query ended without an answer: it needed too much memory", remedy=TOO_LONG) from None
    if "possible" in answer:
        raise Missing(
            f"this system cannot make a process read-only: it could {answer['possible'][0]}", remedy=NO_KERNEL
        )
    if "error" in answer:
        raise BadRequest("query", answer["error"], remedy=TOO_LONG if answer["error"].startswith("INTERRUPT") else "")
    return answer
