"""`chainfolio sql "SELECT …"`: DuckDB over the lake, read-only, in a child process that can reach nothing else."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio.errors import BadRequest, ChainfolioError, Missing, StaleTable
from chainfolio.tables import TABLES
from cli.common import Commands, add_csv, show_csv, show_json, show_table, with_system

if TYPE_CHECKING:
    from indexer.wiring import System
    from storage.lake import Lake

# Hex with a capital, as wallets and explorers show addresses, where nothing makes it lower.
MIXED = re.compile(r"(?<!lower\()'(0x(?=[0-9a-f]*[A-F])[0-9a-fA-F]{8,64})'")
TOO_LONG = "ask for less, or raise --seconds"
NO_KERNEL = "run it on Linux or macOS, or print views for a DuckDB of your own: chainfolio sql"


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("sql", parents=[common], help="ask the lake in SQL", description=__doc__)
    command.add_argument(
        "query", nargs="?", help="one SELECT (- : from standard input); without it: views for your DuckDB"
    )
    add_csv(command)
    command.add_argument("--limit", type=int, default=1000, metavar="N", help="rows at most (default 1000; 0: all)")
    command.add_argument("--seconds", type=int, default=60, metavar="S", help="stop the query after this long")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.limit < 0 or options.seconds < 1:
        raise BadRequest("query", "--limit is at least 0 (all rows), --seconds at least 1")

    async def files(system: System) -> Sources:
        return sources(system.lake)

    tables = with_system(options, files)
    if options.query is None:
        from storage.views import views

        absolute = {name: list(map(_absolute, files)) for name, files in tables.files.items()}
        print("\n".join(views(absolute, tables.refused)))
        return 0
    query = sys.stdin.read() if options.query == "-" else options.query
    for literal in dict.fromkeys(MIXED.findall(query)):
        print(f"note: '{literal}' is in no table: they hold '{literal.lower()}', in lower case", file=sys.stderr)
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
    """The files of each table that can be read, and for each other one why it cannot."""

    files: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def sources(lake: Lake) -> Sources:
    """What a query can read. A table of another release refuses only the queries that read it."""
    readable = Sources()
    for name, table in TABLES.items():
        try:
            if lake.exists(table):
                readable.files[name] = lake.files(table)
        except StaleTable as error:
            readable.refused[name] = f"{error.message}: {error.remedy}"
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
