"""`chainfolio check`: compare every stored file with its checksums, and make damaged ones good.

The exit code is 0 where no file is damaged, 5 where one is and was not repaired.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chainfolio.cli.common import Commands, one_line, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.progress_bar import watch
from chainfolio.errors import BadRequest
from chainfolio.indexer import scrub
from chainfolio.indexer.repair import drop_rates, repair
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    from chainfolio.indexer.scrub import FileCheck
    from chainfolio.indexer.wiring import System

DAMAGED = 5


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser(
        "check",
        parents=[common],
        help=GROUPS["check"],
        description=__doc__,
    )
    command.add_argument("chain", nargs="?", help="key of a chain (default: all chains)")
    command.add_argument("--tables", metavar="A,B", help="only these tables (default: all)")
    command.add_argument(
        "--repair", action="store_true", help="index the blocks of damaged files again, from the nodes of the settings"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the damaged files and the counts of checked ones; with --repair, index their blocks again.

    The exit code is `DAMAGED` if a file is damaged and was not repaired, else 0, also if the chain has no files.

    Raises:
        BadRequest: for an unknown table, or a chain that is neither configured nor has files of the tables.
    """
    names = [name for name in (options.tables or "").split(",") if name] or list(TABLES)
    for name in names:
        if name not in TABLES:
            raise BadRequest("tables", f"there is no table `{name}`", remedy=f"there are: {', '.join(TABLES)}")
    report = with_system(options, lambda system: _checked(system, options, names))
    if options.json:
        one_line(report)
    else:
        _show(report)
    return DAMAGED if report["damaged"] and not options.repair else 0


async def _checked(system: System, options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Check the files of tables, and repair damaged ones if options say so; return the report for --json.

    Progress goes to standard error, unless --json is given. Keys are the counts `files` and `sound`, `bytes`, the list
    `damaged`, and after a repair `repaired`: rows by table, by chain.

    Raises BadRequest for a chain that is not configured and has no such files.
    """
    chains = [options.chain] if options.chain else []
    report: dict[str, Any] = {}
    files = scrub.list_files(system.lake, chains, names)
    if options.chain and not files:
        system.chain(options.chain)  # refuses a misspelled key; chains that were removed may have files
    total, read_bytes, start_s = sum(file.size for _, file in files), 0, time.monotonic()
    progress = watch("check")

    def read(count: int) -> None:
        nonlocal read_bytes
        read_bytes += count
        if not options.json:
            share = min(1.0, read_bytes / max(1, total))
            progress(share, time.monotonic() - start_s, lambda: f"{read_bytes >> 20:,} of {total >> 20:,} MiB")

    results = list(scrub.check_files(system.lake, files, read))
    damaged = [each for each in results if each.state == "damaged"]
    states = Counter(each.state for each in results)
    report |= {
        "files": len(results),
        "bytes": total,
        "sound": states["sound"],
        "damaged": [
            {
                "table": each.table,
                "file": each.file.path,
                "chain": each.file.chain,
                "fromBlock": each.file.first,
                "toBlock": each.file.last,
                "problem": each.problem,
            }
            for each in damaged
        ],
    }
    if options.repair and damaged:
        report["repaired"] = await _repaired(system, damaged)
    return report


async def _repaired(system: System, damaged: Sequence[FileCheck]) -> dict[str, dict[str, int]]:
    """Index the blocks of damaged files again; return the rows of each table, by chain.

    Damaged rates are dropped. Raises Locked if another process has the chain.
    """
    rows = drop_rates(system.lake, damaged)
    for key in sorted({each.file.chain for each in damaged} - rows.keys()):
        chain = system.chain(key)
        with system.tail.lock(key):
            rows[key] = await repair(chain, system.lake, system.tail, system.environment, damaged)
    return rows


def _show(report: dict[str, Any]) -> None:
    """Print the counts, each damaged file and the repaired rows; how to repair goes to standard error."""
    print(f"{report['files']:,} files, {report['bytes']:,} bytes: {report['sound']:,} match their checksums")
    for each in report["damaged"]:
        print(
            f"DAMAGED {each['table']}/{each['file']} (blocks {each['fromBlock']:,} to {each['toBlock']:,}): "
            f"{each['problem']}"
        )
    for chain, rows in report.get("repaired", {}).items():
        print(f"{chain} repaired: " + ", ".join(f"{name} {count:,}" for name, count in rows.items()))
    if report["damaged"] and "repaired" not in report:
        print("chainfolio check --repair indexes the blocks of these files again", file=sys.stderr)
