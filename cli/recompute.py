"""`chainfolio recompute`: values of many accounts from stored snapshots and prices, without a node.

--block values the newest snapshot of each account up to a block, with the prices stored since then. --from and --to
value the snapshot of each day.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chainfolio.cli import wallets
from chainfolio.cli.common import Commands, add_csv, count_text, money, show_csv, show_json, show_table, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.progress_bar import watch
from chainfolio.engine.named_accounts import on_chains
from chainfolio.engine.recompute.executors import EXECUTORS, Executor
from chainfolio.engine.recompute.partitions import Task, partitions
from chainfolio.engine.requests.days import parse_day
from chainfolio.engine.stored_prices.store import PriceStore
from chainfolio.errors import BadRequest

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.engine.recompute.partitions import Partition
    from chainfolio.environment import Clock
    from chainfolio.indexer.wiring import System
    from chainfolio.storage.object_store import ObjectStore

MAX_WORKERS: Final = 1_000
MAX_BATCHES: Final = 1_000  # of prices that move to the lake first
COLUMNS: Final = ("address", "day", "block", "completeness", "value", "valued", "unpriced")
TABLE: Final = (
    ("address", "left"),
    ("day", "left"),
    ("block", "right"),
    ("value USD", "right"),
    ("completeness", "left"),
    ("unpriced", "right"),
)


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("recompute", parents=[common], help=GROUPS["recompute"], description=__doc__)
    command.add_argument("--accounts", required=True, metavar="FILE", help="addresses, one a line (- : standard input)")
    command.add_argument("--chain", required=True, metavar="KEY", help="the chain")
    command.add_argument("--block", type=int, metavar="N", help="one value of each account, at this block")
    command.add_argument("--from", dest="first", metavar="DAY", help="a value each day from YYYY-MM-DD")
    command.add_argument("--to", dest="last", metavar="DAY", help="until YYYY-MM-DD, included")
    command.add_argument(
        "--executor", choices=EXECUTORS, default="inline", help="where it is computed (default inline)"
    )
    command.add_argument(
        "--workers", type=int, default=0, metavar="N", help="processes, or tasks of Ray at once (default: processors)"
    )
    command.add_argument("--ray", default="", metavar="ADDRESS", help="ray://HOST:10001; without it, Ray starts here")
    command.add_argument("--out", metavar="PATH", help="write FILE.parquet, or a Delta table as one commit")
    add_csv(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the value of each account and day, or write them with --out; the exit code is 0.

    Raises:
        BadRequest: The options name no block and no days, or both, or a value is out of range.
    """
    first, last = _check(options)
    prepared = with_system(options, lambda system: _prepare(system, options, first, last))
    executor = Executor(options.executor, options.workers, options.ray)
    parts = partitions(prepared.task, prepared.accounts, executor.worker_count)
    results = executor.run(parts, _Progress(prepared.clock, len(parts), quiet=options.json).add)
    rows = _in_order(results)
    if options.out:
        from chainfolio.storage.results import write_result

        write_result(rows, options.out, prepared.out_store)
    _show(rows, prepared.accounts, options)
    return 0


def _check(options: argparse.Namespace) -> tuple[date | None, date | None]:
    """Return the first and last day; two times None with --block.

    Raises:
        BadRequest: The options do not fit together.
    """
    has_days = options.first is not None and options.last is not None
    if (options.first is None) != (options.last is None) or has_days == (options.block is not None):
        raise BadRequest(
            "block", "either one block or a range of days is computed", remedy="--block N, or --from and --to"
        )
    if options.block is not None and options.block < 0:
        raise BadRequest("block", "a block height is at least 0")
    if not 0 <= options.workers <= MAX_WORKERS:
        raise BadRequest("workers", f"{options.workers} is not between 0 and {MAX_WORKERS}")
    if options.ray and options.executor != "ray":
        raise BadRequest("ray", f"the executor {options.executor} uses no cluster", remedy="--executor ray")
    if not has_days:
        return None, None
    first, last = parse_day("from", options.first), parse_day("to", options.last)
    if first > last:
        raise BadRequest("from", f"{first} is after {last}")
    return first, last


async def _prepare(system: System, options: argparse.Namespace, first: date | None, last: date | None) -> _Inputs:
    """Move prices of final blocks to the lake, and return what the run needs.

    Raises BadRequest for a file without addresses, or with accounts of another kind of chain.
    """
    chain = system.chain(options.chain)
    accounts = []
    for each, line_name in wallets.read_accounts(options.accounts).items():
        account = on_chains(system, each, [chain.key])
        if account.kind != chain.kind:
            raise BadRequest("accounts", f"{line_name}: {each} is not an account of {chain.key}")
        accounts.append(account.address)
    if not accounts:
        raise BadRequest("accounts", f"{options.accounts} has no address", remedy="one address a line")
    prices = PriceStore(chain.key, system.lake, system.tail)
    for _ in range(MAX_BATCHES):
        if not prices.settle_final():
            break
    store = system.object_store(system.lake.uri)
    task = Task(_absolute(system.lake.uri), chain.key, options.block, first, last, store)
    return _Inputs(task, accounts, system.environment.clock, system.object_store(options.out or ""))


def _absolute(uri: str) -> str:
    """Return a local path as absolute; a URI stays as it is."""
    return uri if "://" in uri else str(Path(uri).absolute())


def _in_order(results: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of all partitions by account and day."""
    import polars as pl

    return pl.concat(results).sort("account", "day").rechunk()


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Task, accounts and object store of a run."""

    task: Task
    accounts: list[str]
    clock: Clock
    out_store: ObjectStore | None


class _Progress:
    """Shows on standard error how many partitions are computed."""

    def __init__(self, clock: Clock, total: int, *, quiet: bool) -> None:
        self._clock, self._total, self._quiet = clock, total, quiet
        self._done, self._began_s, self._show = 0, clock.monotonic_s(), watch("recompute")

    def add(self, partition: Partition) -> None:
        """Count a partition."""
        self._done += 1
        if not self._quiet:
            text = f"{self._done:,} of {count_text(self._total, 'partition')}, last {partition.name}"
            self._show(self._done / self._total, self._clock.monotonic_s() - self._began_s, lambda: text)


# --- how it is shown -------------------------------------------------------------------------------------------------


def _show(rows: pl.DataFrame, accounts: Sequence[str], options: argparse.Namespace) -> None:
    """Print the rows as --json, --csv or a table; with --out their number in place of the table.

    Accounts without a stored snapshot are counted on standard error, or listed with --json.
    """
    missing = sorted(set(accounts) - set(rows["account"].to_list()))
    if options.json:
        show_json(_document(rows, missing, options))
        return
    if options.csv:
        show_csv(COLUMNS, _cells(rows))
    elif not options.out:
        table = [
            [*cells[:3], "-" if cells[4] is None else money(cells[4]), cells[3], str(cells[6] or "")]
            for cells in _cells(rows)
        ]
        show_table(options.chain, TABLE, table)
    if options.out:
        print(f"{options.out}: {count_text(rows.height, 'value')}", file=sys.stderr if options.csv else sys.stdout)
    if missing:
        print(
            f"{count_text(len(missing), 'account')} without a stored snapshot, the first {missing[0]}", file=sys.stderr
        )


def _cells(rows: pl.DataFrame) -> Iterator[tuple[str, str, str, str, str | None, int, int]]:
    """Yield account, day, height, completeness, value, and the numbers of valued and unpriced holdings."""
    for account, day, height, *rest in rows.drop("chain").iter_rows():
        yield account, f"{day:%Y-%m-%d}", str(height), *rest


def _document(rows: pl.DataFrame, missing: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Return the rows for --json as `values`, the options, and accounts without one as `withoutSnapshot`.

    The options are `chain`, `block`, `from` and `to`.
    """
    values = [
        {
            "address": account,
            "day": day,
            "block": int(height),
            "value": value,
            "completeness": completeness,
            "valued": valued,
            "unpriced": unpriced,
        }
        for account, day, height, completeness, value, valued, unpriced in _cells(rows)
    ]
    asked = {"chain": options.chain, "block": options.block, "from": options.first, "to": options.last}
    return {**asked, "values": values, "withoutSnapshot": list(missing)}
