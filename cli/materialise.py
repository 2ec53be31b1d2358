"""`chainfolio materialise CHAIN`: make derived tables, or all tables again from what is stored. No node is asked."""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from chainfolio.chains import Capability
from cli.common import Commands, one_line, with_system
from cli.process import for_bulk

if TYPE_CHECKING:
    from indexer.wiring import System


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("materialise", parents=[common], help="decode stored data again", description=__doc__)
    command.add_argument("chain")
    command.add_argument("--tables", metavar="A,B", help="default: all decoded from logs, then all derived")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    for_bulk()

    async def work(system: System) -> dict[str, int]:
        from indexer import consistency, materialise
        from indexer.reprocess import reprocess

        chain = system.chain(options.chain)
        named = [name for name in (options.tables or "").split(",") if name]
        can_decode = Capability.RESTORE in chain.capabilities
        decoded = materialise.decoded()
        base = [name for name in named or (decoded if can_decode else ()) if name in decoded]
        made = [name for name in named if name in materialise.DERIVED] if named else list(materialise.DERIVED)
        materialise.check(named)
        with ExitStack() as locks:
            locks.enter_context(system.tail.lock(chain.key))
            consistency.check(system.lake, system.tail, chain.key)
            written = _migrated(system, chain.key, locks)
            if base and not written.keys() & set(base):
                written |= reprocess(chain, system.lake)
            written |= materialise.materialise(
                system.lake, system.tail, chain.key, [n for n in made if not base or n not in materialise.HISTORIES]
            )
            for name in [n for n in made if base and n in materialise.HISTORIES]:
                written[name] = materialise.history_again(system.lake, system.tail, chain.key, name)
        return written

    def _migrated(system: System, held: str, locks: ExitStack) -> dict[str, int]:
        """Tables that another revision wrote are made again first, those of all chains: they are one table."""
        from indexer import consistency, migration

        if not migration.stale(system.lake):
            return {}
        keys = migration.chains(system.lake)
        for key in keys:
            if key != held:
                locks.enter_context(system.tail.lock(key))
                consistency.check(system.lake, system.tail, key)
        return migration.migrate([system.chain(key) for key in keys], system.lake, system.tail)

    start_s = time.monotonic()
    written = with_system(options, work)
    seconds = time.monotonic() - start_s
    if options.json:
        one_line({"chain": options.chain, "rows": written, "seconds": round(seconds, 3), "requests": 0})
        return 0
    for table, rows in written.items():
        print(f"{table}: {rows:,} rows")
    print(f"{seconds:.1f} s, no request to any node")
    return 0
