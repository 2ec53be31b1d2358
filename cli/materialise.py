"""`chainfolio materialise CHAIN`: make derived tables, or all tables, from stored data without a node."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from chainfolio.capabilities import Capability
from chainfolio.cli.common import Commands, one_line, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.process import keep_freed_memory
from chainfolio.indexer import consistency, materialise
from chainfolio.indexer.reprocess import reprocess

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("materialise", parents=[common], help=GROUPS["materialise"], description=__doc__)
    command.add_argument("chain")
    command.add_argument("--tables", metavar="A,B", help="default: all decoded from logs, then all derived")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Make derived tables, or all, from stored data without a node, and print the rows of each; returns 0.

    Raises BadRequest for a table that is neither decoded from logs nor derived from others.
    """
    keep_freed_memory()

    async def work(system: System) -> dict[str, int]:

        chain = system.chain(options.chain)
        tables = [name for name in (options.tables or "").split(",") if name]
        can_decode = Capability.RESTORE in chain.capabilities
        decoded = materialise.decoded_tables()
        base = [name for name in tables or (decoded if can_decode else ()) if name in decoded]
        derived = [name for name in tables if name in materialise.DERIVED] if tables else list(materialise.DERIVED)
        materialise.check_tables(tables)
        with system.tail.lock(chain.key):
            consistency.check(system.lake, system.tail, chain.key)
            row_counts = reprocess(chain, system.lake) if base else {}
            row_counts |= materialise.materialise(
                system.lake, system.tail, chain.key, [n for n in derived if not base or n not in materialise.HISTORIES]
            )
            for name in [n for n in derived if base and n in materialise.HISTORIES]:
                row_counts[name] = materialise.rebuild_history(system.lake, system.tail, chain.key, name)
        return row_counts

    start_s = time.monotonic()
    row_counts = with_system(options, work)
    seconds = time.monotonic() - start_s
    if options.json:
        one_line({"chain": options.chain, "rows": row_counts, "seconds": round(seconds, 3), "requests": 0})
        return 0
    for table, rows in row_counts.items():
        print(f"{table}: {rows:,} rows")
    print(f"{seconds:.1f} s, no request to any node")
    return 0
