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

from chainfolio.errors import BadRequest
from chainfolio.tables import TABLES
from cli.common import Commands, one_line, with_system
from cli.progress_bar import watch

if TYPE_CHECKING:
    from indexer.scrub import Checked
    from indexer.wiring import System

DAMAGED = 5


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser(
        "check", parents=[common], help="compare stored files with their checksums", description=__doc__,
    )  # fmt: skip
    command.add_argument("chain", nargs="?", help="key of a chain (default: all chains)")
    command.add_argument("--tables", metavar="A,B", help="only these tables (default: all)")
    command.add_argument(
        "--repair", action="store_true", help="index the blocks of damaged files again, from the nodes of the settings"
    )
    command.add_argument(
        "--add-checksums", action="store_true", help="write files of older releases anew, with checksums"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
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
    from indexer import scrub

    chains = [options.chain] if options.chain else []
    report: dict[str, Any] = {}
    if options.add_checksums:
        report["checksumsAdded"] = _add_checksums(system, chains, names)
    files = scrub.listed(system.lake, chains, names)
    total, done, start_s = sum(file.size for _, file in files), 0, time.monotonic()
    shown = watch("check")

    def read(count: int) -> None:
        nonlocal done
        done += count
        if not options.json:
            share = min(1.0, done / max(1, total))
            shown(share, time.monotonic() - start_s, lambda: f"{done >> 20:,} of {total >> 20:,} MiB")

    results = list(scrub.checked(system.lake, files, read))
    damaged = [each for each in results if each.state == "damaged"]
    states = Counter(each.state for each in results)
    report |= {
        "files": len(results), "bytes": total, "sound": states["sound"], "withoutChecksums": states["unsummed"],
        "damaged": [
            {"table": each.table, "file": each.file.path, "chain": each.file.chain, "fromBlock": each.file.first,
             "toBlock": each.file.last, "problem": each.problem}
            for each in damaged
        ],
    }  # fmt: skip
    if options.repair and damaged:
        report["repaired"] = await _repaired(system, damaged)
    return report


def _add_checksums(system: System, chains: Sequence[str], names: Sequence[str]) -> int:
    count = 0
    for table in (TABLES[name] for name in names):
        for chain in (key for key in system.lake.chains(table) if not chains or key in chains):
            with system.tail.lock(chain):
                count += system.lake.add_checksums(table, chain)
    return count


async def _repaired(system: System, damaged: Sequence[Checked]) -> dict[str, dict[str, int]]:
    from indexer.repair import dropped, repair

    rows = dropped(system.lake, damaged)
    for key in sorted({each.file.chain for each in damaged} - rows.keys()):
        chain = system.chain(key)
        with system.tail.lock(key):
            rows[key] = await repair(chain, system.lake, system.tail, system.seams, damaged)
    return rows


def _show(report: dict[str, Any]) -> None:
    if "checksumsAdded" in report:
        print(f"{report['checksumsAdded']:,} files have checksums now")
    print(f"{report['files']:,} files, {report['bytes']:,} bytes: {report['sound']:,} match their checksums")
    if count := report["withoutChecksums"]:
        print(f"{count:,} files have no checksums, an older release wrote them: chainfolio check --add-checksums")
    for each in report["damaged"]:
        print(
            f"DAMAGED {each['table']}/{each['file']} (blocks {each['fromBlock']:,} to {each['toBlock']:,}): "
            f"{each['problem']}"
        )
    for chain, rows in report.get("repaired", {}).items():
        print(f"{chain} repaired: " + ", ".join(f"{name} {count:,}" for name, count in rows.items()))
    if report["damaged"] and "repaired" not in report:
        print("chainfolio check --repair indexes the blocks of these files again", file=sys.stderr)
