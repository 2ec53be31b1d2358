"""Run server and follower for days of virtual time; measure files, memory and requests by the hour.

python -m bench.soak [--days 30] [--block-ms 250] [--transfers 6] [--seed 1] [--hours-file FILE]

The server's application, the follower, the scheduler and the stores are the product's; the clock is virtual, and the
chain is generated (`bench.soak_chain`). It has reorganisations, outages and pauses. The process is restarted, the clock
is set, and the machine sleeps. In the end all rows are compared with a lake that is written at once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

from bench.figures import Figure, main
from bench.places import scratch
from bench.soak_run import Hour, Plan, Result, soak

MAX_FILES = 3_000
MAX_ACCOUNT_FILES = 4
MAX_BYTES = 1.15
MAX_MEMORY = 1.1
MAX_CPU = 1.2


def digest(hours: list[Hour]) -> str:
    """Return a hash of the records of all hours, without memory, threads and processor time."""
    return hashlib.sha256(json.dumps([asdict(each.counted) for each in hours]).encode()).hexdigest()


def figures_of(plan: Plan, result: Result) -> list[Figure]:
    """Return the figures of a run with their bars."""
    hours, counts = result.hours, [each.counted for each in result.hours]
    subject = f"{plan.days * 24:g} h, a block each {plan.block_ms} ms with {plan.transfers} transfers, seed {plan.seed}"
    last = counts[-1]
    day = min(24, len(hours) // 2) or 1
    first_cpu, last_cpu = (sum(each.machine.cpu_s for each in part) for part in (hours[:day], hours[-day:]))
    blocks = [later.blocks - sooner.blocks for sooner, later in zip([None, *counts], counts, strict=False) if sooner]
    first_blocks, last_blocks = sum([counts[0].blocks, *blocks][:day]), sum([counts[0].blocks, *blocks][-day:])
    cpu = (last_cpu / max(1, last_blocks)) / (first_cpu / max(1, first_blocks))
    memory = hours[-1].machine.memory_mb / hours[min(1, len(hours) - 1)].machine.memory_mb
    files, account_files = max(each.files for each in counts), max(each.account_files for each in counts)
    rows = f"{result.different_rows} of {result.rows:,} ({last.blocks:,} blocks, {last.transfers:,} transfers followed)"
    bars = [
        ("rows that differ from a lake written at once", rows, "0", result.different_rows == 0),
        ("most data files, replaced ones too", f"{files:,}", f"≤ {MAX_FILES:,}", files <= MAX_FILES),
        ("most files of the logs of tables", f"{max(each.log_files for each in counts):,}", "", None),
        (
            "most files of an account's history",
            f"{account_files}",
            f"≤ {MAX_ACCOUNT_FILES}",
            account_files <= MAX_ACCOUNT_FILES,
        ),
        ("bytes / written at once", f"{result.bytes_ratio:.2f} x", f"≤ {MAX_BYTES}", result.bytes_ratio <= MAX_BYTES),
        ("least memory in the last hour / in the second", f"{memory:.2f} x", f"≤ {MAX_MEMORY}", memory <= MAX_MEMORY),
        ("processor time a block, last day / first", f"{cpu:.2f} x", f"≤ {MAX_CPU}", cpu <= MAX_CPU),
        ("requests that failed with 500", f"{last.failed}", "0", last.failed == 0),
    ]
    return [Figure("soak", f"{subject}: {name}", value, bar, met, in_readme=False) for name, value, bar, met in bars]


def run(options: argparse.Namespace) -> list[Figure]:
    """Run the soak and return its figures; write the hours into a file if one is named."""
    names = ("seed", "days", "block_ms", "transfers", "accounts", "requests", "keep_h")
    plan = Plan(**{name: getattr(options, name) for name in names})
    with scratch() as folder:
        result = soak(plan, folder, show=lambda hour: print(line_of(hour), flush=True))
    if options.hours_file:
        lines = [json.dumps(asdict(each)) + "\n" for each in result.hours]
        Path(options.hours_file).write_text("".join(lines))
    print(f"digest of the hours: {digest(result.hours)}", file=sys.stderr)
    return figures_of(plan, result)


def line_of(hour: Hour) -> str:
    """Return an hour as a line of text."""
    counts, machine = hour.counted, hour.machine
    memory = f"{machine.memory_mb:.0f} to {machine.peak_mb:.0f} MB memory"
    return (
        f"hour {counts.hour}: {counts.blocks:,} blocks, {counts.files} + {counts.log_files} files, "
        f"{counts.lake_bytes / 1e6:.0f} MB, {memory}, {counts.account_files} an account, "
        f"{counts.steps_median}/{counts.steps_most} steps, lag {counts.lag}, {machine.cpu_s:.1f} s"
    )


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--block-ms", type=int, default=250)
    parser.add_argument("--transfers", type=int, default=6)
    parser.add_argument("--accounts", type=int, default=50_000)
    parser.add_argument("--requests", type=int, default=24, help="requests an hour")
    parser.add_argument("--keep-h", type=int, default=1, help="hours for which replaced files stay")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours-file", default="", help="gets a line of JSON for each hour")


if __name__ == "__main__":
    main(__doc__, run, add)
