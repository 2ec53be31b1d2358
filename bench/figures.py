"""Figures and their bars: as a table, as JSON lines, and as the table in the README."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.places import HERE, MissingPrerequisite, results

README = HERE / "README.md"
BEGIN, END = "<!-- results -->", "<!-- /results -->"
MARKS = {True: "yes", False: "**no**", None: "–"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure.

    Attributes:
        bar: The limit as text; empty if there is none.
        met: Whether the figure keeps its bar; None without a bar, or without a peer to compare with.
    """

    bench: str
    name: str
    value: str
    bar: str = ""
    met: bool | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    in_readme: bool = True


def machine() -> dict[str, Any]:
    """Return the facts of this machine on which a figure depends."""
    cpus = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    return {
        "cores": os.cpu_count(),
        "cpu": cpus[0] if cpus else platform.processor(),
        "ram_gb": round(memory[0] / 2**20) if memory else None,
        "python": platform.python_version(),
        "system": platform.system(),
        "load": round(os.getloadavg()[0], 1),
        "revision": _revision(),
    }


def _revision() -> str:
    """Return the current commit, with `+` if files differ from it; empty outside a checkout."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--match="]
    try:
        return subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Format the median, least and greatest value and the count: `2.00 [1.00–3.00] (n=3)`."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} [{low:.{digits}f}–{high:.{digits}f}] (n={len(values)})"


def table(figures: Sequence[Figure]) -> str:
    """Return figures as a table of text."""
    rows = [("bench", "what", "figure", "bar", "met")]
    rows += [(f.bench, f.name, f.value, f.bar, MARKS[f.met].strip("*")) for f in figures]
    widths = [max(len(row[k]) for row in rows) for k in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def append(figures: Sequence[Figure], *, at: datetime | None = None) -> Path:
    """Append one JSON line per figure, with date and machine, to the file of results; return its path."""
    path = results() / "figures.jsonl"
    timestamp = (at or datetime.now(UTC)).isoformat(timespec="seconds")
    with path.open("a") as file:
        for figure in figures:
            file.write(json.dumps({"date": timestamp, "machine": machine(), **asdict(figure)}, default=str) + "\n")
    return path


def parse(lines: Sequence[str]) -> list[tuple[str, dict[str, Any], Figure]]:
    """Return date, machine and figure of each JSON line, in order; blank lines are skipped."""
    names = Figure.__dataclass_fields__
    parsed = [json.loads(line) for line in lines if line.strip()]
    return [(row["date"], row["machine"], Figure(**{n: row[n] for n in names if n in row})) for row in parsed]


def latest(lines: Sequence[str]) -> list[tuple[str, dict[str, Any], Figure]]:
    """Return the figures of the last run of each benchmark, in the order of `ORDER`."""
    runs: dict[str, tuple[str, list[tuple[str, dict[str, Any], Figure]]]] = {}
    for entry in parse(lines):
        date, _, figure = entry
        if figure.bench not in runs or runs[figure.bench][0] != date:
            runs[figure.bench] = (date, [])
        runs[figure.bench][1].append(entry)
    return [entry for name in sorted(runs, key=_position) for entry in runs[name][1]]


ORDER = (
    "rate",
    "clients",
    "full",
    "cache",
    "faults",
    "byzantine",
    "mutants",
    "kills",
    "first",
    "snapshot",
    "wallets",
    "lookup",
    "checksums",
    "progress",
    "serving",
    "rolling",
    "outages",
    "ledger",
    "limits",
    "positions",
    "matching",
    "reorgs",
    "accounts",
    "newcomer",
    "history",
    "pools",
    "pnl",
    "gains",
    "valuation",
    "recompute",
    "workers",
    "queue_simulation",
    "validators",
    "solana",
    "solana_history",
    "dust",
    "startup",
    "face",
    "footprint",
)


def _position(bench: str) -> int:
    return ORDER.index(bench) if bench in ORDER else len(ORDER)


def markdown(entries: Sequence[tuple[str, dict[str, Any], Figure]], old_rows: Sequence[str] = ()) -> str:
    """Return the table of the README: figures with a bar, and `old_rows` of benchmarks not in `entries`."""
    dates = sorted({date[:10] for date, _, _ in entries})
    facts = entries[-1][1] if entries else {}
    machine = f"{facts.get('cores')} cores ({facts.get('cpu')}), {facts.get('ram_gb')} GB, Python {facts.get('python')}"
    figures = [figure for _, _, figure in entries if figure.in_readme and figure.bar]
    measured = {figure.bench for _, _, figure in entries}
    rows = [f"| {f.bench} | {f.name} | {f.value} | {f.bar} | {MARKS[f.met]} |" for f in figures]
    rows = sorted(
        [*rows, *(row for row in old_rows if _bench(row) not in measured)], key=lambda row: _position(_bench(row))
    )
    head = (
        f"{machine}; {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}." if entries else "Nothing was measured yet."
    )
    return "\n".join([head, "", "| bench | what | figure | bar | met |", "|---|---|---|---|---|", *rows])


def _bench(row: str) -> str:
    return row.removeprefix("| ").partition(" |")[0]


def between(text: str, content: str) -> str:
    """Return a text with the content between its markers replaced; ValueError without such markers."""
    start, stop = text.index(BEGIN) + len(BEGIN), text.index(END)
    if stop < start:
        raise ValueError("the markers stand the wrong way round")
    return f"{text[:start]}\n{content}\n{text[stop:]}"


def rewrite(readme: Path = README) -> None:
    """Write the newest figures into the README; other benchmarks keep their rows."""
    path, text = results() / "figures.jsonl", readme.read_text()
    lines = path.read_text().splitlines() if path.exists() else []
    rows = text.partition(BEGIN)[2].partition(END)[0].splitlines()
    old_rows = [row for row in rows if row.startswith("| ") and _bench(row) != "bench"]
    readme.write_text(between(text, markdown(latest(lines), old_rows)))


Bench = Callable[[argparse.Namespace], list[Figure]]
Options = Callable[[argparse.ArgumentParser], None]


def options(description: str | None, add: Options, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options of one benchmark."""
    parser = argparse.ArgumentParser(description=description)
    add(parser)
    return parser.parse_args(arguments)


def main(description: str | None, run: Bench, add: Options = lambda parser: None) -> None:
    """Run one benchmark as a command: measure, print the figures and append them to the results.

    A missing prerequisite ends the process with its message.
    """
    try:
        measured = run(options(description, add, sys.argv[1:]))
    except MissingPrerequisite as error:
        sys.exit(str(error))
    print(table(measured))
    print(f"\nappended to {append(measured)}")
