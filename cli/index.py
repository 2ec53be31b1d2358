"""`chainfolio index`: index one chain up to its newest block, and make the derived tables."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.assets import evm_address
from chainfolio.chain_settings import EVERYTHING
from chainfolio.chains import errors_by_endpoint
from chainfolio.cli.common import Commands, one_line, settings, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.process import keep_freed_memory
from chainfolio.cli.progress_bar import duration_text, watch
from chainfolio.errors import BadRequest, Unavailable
from chainfolio.indexer import consistency, materialise
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.estimate import estimate
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.rewind import check_anchor, check_span, rewind
from chainfolio.indexer.wiring import check_datasets
from chainfolio.indexer.work import heights, missing, missing_for_accounts
from chainfolio.indexer.worker_pool import WorkerProcess
from chainfolio.supervisor import in_thread

if TYPE_CHECKING:
    from chainfolio.blocks import Span
    from chainfolio.chains import Chain
    from chainfolio.indexer.wiring import System
    from chainfolio.indexer.work import Work
    from chainfolio.settings import Settings


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("index", parents=[common], help=GROUPS["index"], description=__doc__)
    command.add_argument("chain", help="key of a configured chain")
    command.add_argument("--from", dest="first", type=int, metavar="N", help="first block (default: start_block)")
    command.add_argument("--to", dest="last", type=int, metavar="N", help="last block (default: the newest)")
    command.add_argument("--datasets", metavar="A,B", help="datasets and derived tables (default: all datasets)")
    command.add_argument("--contracts", metavar="0x…,0x…", help="only these token contracts")
    command.add_argument("--estimate", action="store_true", help="say what the run would cost, and do not run")
    command.add_argument("--rewind", type=int, metavar="N", help="first forget everything from block N on")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Index the missing blocks of a chain and print counts, or with --estimate only the cost.

    --rewind forgets everything from a height on first. The exit code is 0.

    Raises:
        BadRequest: for --rewind together with --estimate.
    """
    if options.estimate and options.rewind is not None:
        raise BadRequest("rewind", "an estimate changes nothing, and --rewind forgets blocks", remedy="leave one out")
    keep_freed_memory()
    worker_processes = (
        [] if options.estimate else start_worker_processes(settings(options), options.chain)
    )  # before anything large is loaded
    try:
        with_system(options, lambda system: _index(system, options, worker_processes))
    finally:
        for worker_process in worker_processes:
            worker_process.close()
    return 0


def start_worker_processes(config: Settings, chain: str) -> list[WorkerProcess]:
    """Start the processes of a bulk run beside this one, which is the first; empty if it is the only one."""
    count = config.chains[chain].worker_processes if chain in config.chains else 1
    return [WorkerProcess(number, count, config, chain) for number in range(1, count)]


async def _index(system: System, options: argparse.Namespace, worker_processes: Sequence[WorkerProcess]) -> None:
    """Index what is missing of a chain and derived tables, under the chain's lock, and print a report.

    With --estimate it only reads, without the lock, and prints the cost.

    Raises:
        BadRequest: for a wrong dataset, contract or span.
        DeepReorg: The last final block is not on the chain any more.
        Locked: Another process indexes the chain.
    """
    chain = system.chain(options.chain)
    contracts = [evm_address(contract) for contract in _names(options.contracts)] or chain.settings.chosen
    if not options.datasets and not chain.settings.datasets:
        await chain.probe(chain.settings.start_block if options.first is None else options.first)
    all_datasets = system.datasets(chain) if chain.settings.index == EVERYTHING else ()
    datasets = _names(options.datasets) or [*all_datasets, *materialise.HISTORIES]
    derived = [name for name in datasets if name in materialise.DERIVED]
    raw = check_datasets(chain, [name for name in datasets if name not in materialise.DERIVED])
    events = system.event_filters(chain, raw)
    if options.estimate:  # reads and writes nothing that needs the lock, so it runs beside a server
        work = missing(system.tail, chain.key, await _span(chain, options), raw, contracts, events)
        await _estimate(system, chain, work, options)
        return
    with system.tail.lock(chain.key):
        if options.rewind is not None:
            _rewind(system, chain, options.rewind)
        consistency.check(system.lake, system.tail, chain.key)
        if system.tail.blocks(chain.key):  # what is final by now belongs into the lake before anything is written to it
            await system.follower(chain).finalise_all()
        span = await _span(chain, options)
        await check_anchor(chain, system.tail)
        progress = Progress(system.environment.clock, 0, on_change=watcher(chain.key, quiet=options.json))
        collector = Collector(chain, system.lake, system.tail, system.environment, progress)
        recovered = await collector.recover()
        # Accounts first: they take minutes, and the rest of a chain may take days.
        work = missing_for_accounts(system.tail, chain, system.scope(chain), span.last) if is_whole(options) else []
        work += missing(system.tail, chain.key, span, raw, contracts, events)
        progress.blocks_total, progress.heights = sum(len(item.spans) for item in work), heights(work)
        await collector.run(work, worker_processes)
        if is_whole(options):
            await _follow(system, chain)
        await in_thread(partial(materialise.recover, system.lake, system.tail, chain.key))
        row_counts = await in_thread(partial(materialise.materialise, system.lake, system.tail, chain.key, derived))
    _report(chain, progress, recovered, row_counts, worker_processes, options)


async def _span(chain: Chain, options: argparse.Namespace) -> Span:
    """Return the blocks that the options name, up to the newest final one."""
    finalized = (await chain.heads()).finalized
    first = chain.settings.start_block if options.first is None else options.first
    span = check_span(chain.key, first, finalized if options.last is None else options.last, finalized)
    if options.last is not None and options.last > span.last:
        print(f"{chain.key}: block {span.last:,} is the newest final one; later ones are left out", file=sys.stderr)
    return span


def is_whole(options: argparse.Namespace) -> bool:
    """Return True if the command indexes everything up to the newest block."""
    return options.last is None and not options.datasets and not options.contracts


async def _follow(system: System, chain: Chain) -> None:
    """Read the blocks that are not final yet, once, so that answers include the newest ones.

    If the chain cannot be read, the reason goes to standard error; the command does not fail.
    """
    try:
        await system.follower(chain).step()
    except Unavailable as error:
        print(f"{chain.key}: the blocks that are not final yet were not read: {error}", file=sys.stderr)


def _names(names: str | None) -> list[str]:
    return [name for name in (names or "").split(",") if name]


def _rewind(system: System, chain: Chain, height: int) -> None:
    """Forget everything from a height on, after a check of what stays; BadRequest below 0."""
    if height < 0:
        raise BadRequest("rewind", "a block height is at least 0")
    if height:  # what stays must be known to both
        consistency.check(system.lake, system.tail, chain.key)
    rewind(system.lake, system.tail, chain.key, height)


def _report(
    chain: Chain,
    progress: Progress,
    recovered: int,
    row_counts: dict[str, int],
    worker_processes: Sequence[WorkerProcess],
    options: argparse.Namespace,
) -> None:
    """Print the counts of a run, as lines or --json, with requests and errors of its worker processes.

    Args:
        recovered: Batches of a killed run that were finished.
        row_counts: Rows written to each derived table.
    """
    requests = chain.requests + sum(worker_process.requests for worker_process in worker_processes)
    errors = merged_counts([errors_by_endpoint(chain), *(each.errors_by_endpoint for each in worker_processes)])
    if options.json:
        one_line(
            {
                "chain": chain.key,
                "blocks": progress.heights,
                "events": progress.events,
                "rows": progress.rows,
                "requests": requests,
                "seconds": round(progress.seconds, 3),
                "restored": progress.restored,
                "recoveredBatches": recovered,
                "derived": row_counts,
                "errors": errors,
            }
        )
        return
    print(
        f"{chain.key}: {progress.heights:,} blocks, {progress.events:,} events, {progress.rows:,} rows "
        f"in {progress.seconds:.1f} s with {requests:,} requests"
        + (f"; {recovered} batches of a killed run finished" if recovered else "")
    )
    for name, rows in row_counts.items():
        print(f"  {name}: {rows:,} rows derived")
    for endpoint, counts in errors.items():
        print(f"  {endpoint}: " + ", ".join(f"{count} x {kind}" for kind, count in sorted(counts.items())))


def merged_counts(parts: Sequence[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """Return the sums of error counts of several processes, by endpoint and kind."""
    total: dict[str, Counter[str]] = {}
    for part in parts:
        for endpoint, counts in part.items():
            total.setdefault(endpoint, Counter()).update(counts)
    return {endpoint: dict(counts) for endpoint, counts in total.items()}


async def _estimate(system: System, chain: Chain, work: Sequence[Work], options: argparse.Namespace) -> None:
    """Print the cost of the missing blocks, as a line or --json.

    The node is read for a sample, which is written to a temporary lake.
    """
    result = await estimate(chain, work, Path(system.settings.data), system.environment.clock)
    if options.json:
        one_line(result)
        return
    print(
        f"{chain.key}: {result['blocks']:,} blocks are missing; about {result['events']:,} events, "
        f"{result['requests']:,} requests, {result['megabytes']:,} MB on disk, {result['seconds']:,} s"
    )


def watcher(
    name: str, *, quiet: bool = False, state: Callable[[Progress], str] | None = None
) -> Callable[[Progress], None]:
    """Return a function that shows progress on standard error; with `quiet`, one that shows nothing.

    Args:
        name: A name for the run, shown with its progress.
        quiet: True to show nothing.
        state: Describes the progress in a line; None for blocks, events and the time left.
    """
    if quiet:
        return lambda progress: None
    bar, describe = watch(name), state or of_blocks

    def show(progress: Progress) -> None:
        is_done = progress.blocks >= progress.blocks_total
        share = 1.0 if is_done else progress.blocks / progress.blocks_total
        bar(share, progress.seconds, lambda: describe(progress))

    return show


def of_blocks(progress: Progress) -> str:
    """Return the progress of a run in one line."""
    blocks, events = progress.rates
    eta, share = progress.eta_s, 100 * progress.blocks // max(1, progress.blocks_total)
    return (
        f"{share} % of {progress.heights or progress.blocks_total:,} blocks {blocks:,.0f}/s, "
        f"{progress.events:,} events {events:,.0f}/s, {progress.requests:,} requests"
        + (f", {duration_text(eta)} left" if eta is not None and progress.blocks < progress.blocks_total else "")
    )
