"""`chainfolio watch`: index the complete histories of some accounts up to the newest block."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from chainfolio.budgets import Budget
from chainfolio.capabilities import Capability
from chainfolio.cli.common import Commands, add_rpc, show_json, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.index import watcher
from chainfolio.cli.names import accounts_of
from chainfolio.cli.progress_bar import duration_text
from chainfolio.cli.status import of_account, show_accounts
from chainfolio.cli.transactions import LIMIT
from chainfolio.engine.gains.pnl import PnlRequest, pnl
from chainfolio.engine.named_accounts import chains_of
from chainfolio.engine.results import MAX_PAGE, TransactionFilter
from chainfolio.engine.service import Engine
from chainfolio.errors import BadRequest, ChainfolioError, Locked
from chainfolio.indexer.account_estimate import estimate
from chainfolio.indexer.scopes import Scope
from chainfolio.indexer.watching import index_accounts
from chainfolio.indexer.wiring import System
from chainfolio.indexer.work import missing_for_accounts
from chainfolio.storage.watches import WatchedAccount

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.indexer.progress import Progress

MAX_PREPARED: Final = 3  # accounts whose answers are prepared
PREPARE_S: Final = 20
MAX_LOOKUPS: Final = 100  # transactions of others that one run reads for it: with more of them, several runs do


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("watch", parents=[common], help=GROUPS["watch"], description=__doc__)
    command.add_argument("address", nargs="+", help="addresses of any kind, or names")
    command.add_argument("--chain", action="append", default=[], metavar="KEY", help="only on this chain; repeatable")
    command.add_argument("--from", dest="first", type=int, metavar="N", help="first block (default: start_block)")
    command.add_argument("--to", dest="last", type=int, metavar="N", help="last block (default: the newest, and on)")
    command.add_argument("--max-requests", type=int, metavar="N", help="end after so many requests to each chain")
    command.add_argument("--max-units", type=int, metavar="N", help="end after so many compute units of a chain")
    command.add_argument("--estimate", action="store_true", help="say what it would cost, and do not run")
    command.add_argument("--stop", action="store_true", help="watch them no longer; what is stored stays")
    add_rpc(command, keeps=True)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Watch addresses and index their histories, or end it with --stop, or print the cost with --estimate.

    Without limits, what `transactions` and `pnl` need beyond the index is read too, unless there are more than
    MAX_PREPARED addresses.
    The exit code is 0, also if another process indexes the chain and will read them.

    Raises:
        BadRequest: for blocks or limits out of range.
    """
    if options.first is not None and options.first < 0:
        raise BadRequest("from", "a block height is at least 0")
    if options.last is not None and options.last < (options.first or 0):
        raise BadRequest("to", f"{options.last} is before {options.first or 0}")
    for name, limit in (("max-requests", options.max_requests), ("max-units", options.max_units)):
        if limit is not None and limit < 1:
            raise BadRequest(name, "at least 1")
    report = with_system(options, lambda system: _all(system, options))
    is_bounded = options.estimate or options.stop or options.max_requests or options.max_units
    if not is_bounded and len(options.address) <= MAX_PREPARED:
        with_system(options, lambda system: _prepare(system, options))
    if options.json:
        show_json(report)
    else:
        for chain in report:
            _show(chain)
    return 0


async def _prepare(system: System, options: argparse.Namespace) -> None:
    """Read what `transactions` and `pnl` need beyond the index, so that they answer at once later.

    It ends after PREPARE_S. What cannot be read now is left to those commands, which report the reason.
    """
    accounts = await accounts_of(system, options.address, options.chain)
    networks = tuple(options.chain)
    questions: list[Callable[[Engine], Awaitable[object]]] = [
        lambda engine: pnl(engine, accounts, PnlRequest(networks=networks)),
        *(
            partial(Engine.transactions, accounts=[account], filters=TransactionFilter(limit, 0, networks=networks))
            for account in accounts
            for limit in (LIMIT, MAX_PAGE)
        ),
    ]
    with contextlib.suppress(ChainfolioError, TimeoutError):
        async with asyncio.timeout(PREPARE_S):
            for question in questions:
                # A new one each time: the reads are to be those of a process that has read nothing yet.
                fresh = System(system.settings, system.environment, shares_answers=True, kinds=system.kinds)
                try:
                    await question(Engine(fresh, max_lookups=MAX_LOOKUPS))
                finally:
                    await fresh.close()


async def _all(system: System, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Watch the addresses on each chain of their kind, one chain after the other, and return the reports."""
    accounts = await accounts_of(system, options.address, options.chain)
    chains = chains_of(system, accounts, options.chain, Capability.ACCOUNT_HISTORY)
    work = {chain: [each.address for each in accounts if each.kind == chain.kind] for chain in chains}
    return [await _watch_chain(system, chain, addresses, options) for chain, addresses in work.items() if addresses]


async def _watch_chain(
    system: System, chain: Chain, addresses: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    """Watch addresses on a chain and index them; return the report for --json.

    With --stop the watch ends, with --estimate nothing is written. If another process indexes the chain, the state is
    `queued`: that process reads them. Raises BadRequest if --from is above the newest block.
    """
    first = chain.settings.start_block if options.first is None else options.first
    watches = [WatchedAccount(address, first, options.last) for address in addresses]
    if options.estimate:
        return await _estimate(system, chain, Scope(tuple(watches)), options.max_requests)
    if options.stop:
        stopped = [address for address in addresses if system.tail.unwatch(chain.key, address)]
        ended = {"chain": chain.key, "state": "stopped", "accounts": [{"account": each} for each in stopped]}
        sold = {
            each.account
            for each in system.tail.owned_watches(chain.key, system.environment.clock.now_us())
            if each.is_sold
        }
        return {**ended, "subscribed": [address for address in addresses if address in sold]}
    if options.first is not None and options.first > (head := (await chain.heads()).latest.height):
        raise BadRequest("from", f"{options.first} is above the newest block of {chain.key}, which is {head}")
    system.tail.watch(chain.key, watches)
    budget = Budget(max_requests=options.max_requests, max_units=options.max_units)
    bar = watcher(chain.key, quiet=options.json, state=_state)
    try:
        with system.tail.lock(chain.key):
            progress = await index_accounts(system, chain, Scope(tuple(watches)), budget=budget, on_change=bar)
    except Locked as error:  # who has the chain takes them up
        report: dict[str, Any] = {"chain": chain.key, "state": "queued", "why": error.message}
    else:
        report = {
            "chain": chain.key,
            "state": "watched",
            "blocks": progress.heights,
            "events": progress.events,
            "rows": progress.rows,
            "requests": chain.requests,
            "seconds": round(progress.seconds, 3),
        }
    return {**report, "accounts": [of_account(system, chain, each) for each in watches]}


async def _estimate(system: System, chain: Chain, scope: Scope, max_requests: int | None) -> dict[str, Any]:
    """Return the estimated cost of reading what is missing."""
    work = missing_for_accounts(system.tail, chain, scope, (await chain.heads()).finalized, include_unread=True)
    cost = await estimate(chain, work, system.environment.clock, max_requests=max_requests)
    return {"chain": chain.key, "state": "estimated", **cost}


def _state(progress: Progress) -> str:
    """Return the progress of a run in one line, with the remaining requests."""
    read_blocks, total = progress.blocks, max(1, progress.blocks_total)
    eta, remaining_requests = (
        progress.eta_s,
        progress.requests * (total - read_blocks) // read_blocks if read_blocks else None,
    )
    return (
        f"{100 * read_blocks // total} % of {progress.heights:,} blocks, {progress.events:,} events, "
        f"{progress.requests:,} requests"
        + (f", about {remaining_requests:,} more" if remaining_requests else "")
        + (f", {duration_text(eta)} left" if eta is not None and read_blocks < total else "")
    )


def _show(report: dict[str, Any]) -> None:
    """Print the report of a chain by its state: estimated, stopped, queued or watched."""
    name, accounts = report["chain"], report.get("accounts", ())
    if report["state"] == "estimated":
        _show_estimate(report)
    elif report["state"] == "stopped":
        subscribed = set(report["subscribed"])
        names = [each["account"] for each in accounts if each["account"] not in subscribed]
        print(f"{name}: watched no longer: {', '.join(names) or 'none was'}")
        for address in report["subscribed"]:
            print(f"{name}: {address} stays watched: a client subscribed to it (chainfolio status)")
    elif report["state"] == "queued":
        print(f"{name}: watched from now on; the process that indexes the chain reads them: {report['why']}")
    else:
        print(
            f"{name}: {report['blocks']:,} blocks, {report['events']:,} events, {report['rows']:,} rows "
            f"in {report['seconds']:.1f} s with {report['requests']:,} requests"
        )
        show_accounts(accounts)


def _show_estimate(cost: dict[str, Any]) -> None:
    """Print the cost of the missing blocks, its uncertainty, and what no endpoint provides."""
    if not cost["blocks"]:
        print(f"{cost['chain']}: nothing is missing")
        return
    print(
        f"{cost['chain']}: {cost['blocks']:,} blocks are missing: about {cost['rows']:,} rows, "
        f"{cost['requests']:,} requests, {cost['units']:,} compute units, {cost['bytes'] / 1e6:,.1f} MB, "
        f"{duration_text(cost['seconds'])}"
    )
    print(
        f"  up to {cost['factor']} times as much, or as little: {cost['sampled']['requests']:,} requests read "
        f"{cost['sampled']['blocks']:,} of the blocks for this"
    )
    if cost["unread"]:
        print(f"  no endpoint gives {', '.join(cost['unread'])}")
