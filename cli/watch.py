"""`chainfolio watch`: index the whole histories of some accounts, and of nobody else, up to the newest block.

They stay watched: `chainfolio worker` and `chainfolio serve` go on with them. Run again, it goes on where it ended.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chainfolio.chains import Capability
from chainfolio.errors import BadRequest, Busy
from cli.common import Commands, add_rpc, show_json, with_system
from cli.index import watcher
from cli.names import accounts_of, chains_of
from cli.progress_bar import clock
from cli.status import of_account, show_accounts

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from indexer.progress import Progress
    from indexer.scopes import Scope
    from indexer.wiring import System


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser(
        "watch", parents=[common], help="index the histories of some accounts", description=__doc__
    )
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
    """Run the command."""
    if options.first is not None and options.first < 0:
        raise BadRequest("from", "a block height is at least 0")
    if options.last is not None and options.last < (options.first or 0):
        raise BadRequest("to", f"{options.last} is before {options.first or 0}")
    for name, most in (("max-requests", options.max_requests), ("max-units", options.max_units)):
        if most is not None and most < 1:
            raise BadRequest(name, "at least 1")
    report = with_system(options, lambda system: _all(system, options))
    if options.json:
        show_json(report)
    else:
        for chain in report:
            _show(chain)
    return 0


async def _all(system: System, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Each chain in turn, with the accounts of its kind."""
    accounts = await accounts_of(system, options.address, options.chain)
    chains = chains_of(system, accounts, options.chain, Capability.ACCOUNT_HISTORY)
    work = {chain: [each.address for each in accounts if each.kind == chain.kind] for chain in chains}
    return [await _one(system, chain, addresses, options) for chain, addresses in work.items() if addresses]


async def _one(system: System, chain: Chain, addresses: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    from chainfolio.budgets import Budget
    from indexer.scopes import Scope
    from indexer.watching import bring_up
    from storage.tail import Watch

    first = chain.settings.start_block if options.first is None else options.first
    watches = [Watch(address, first, options.last) for address in addresses]
    if options.estimate:
        return await _estimate(system, chain, Scope(tuple(watches)), options.max_requests)
    if options.stop:
        stopped = [address for address in addresses if system.tail.unwatch(chain.key, address)]
        ended = {"chain": chain.key, "state": "stopped", "accounts": [{"account": each} for each in stopped]}
        sold = {each.account for each in system.tail.places(chain.key, system.seams.clock.now_us()) if each.is_sold}
        return {**ended, "subscribed": [address for address in addresses if address in sold]}
    if options.first is not None and options.first > (head := (await chain.heads()).latest.height):
        raise BadRequest("from", f"{options.first} is above the newest block of {chain.key}, which is {head}")
    system.tail.watch(chain.key, watches)
    budget = Budget(max_requests=options.max_requests, max_units=options.max_units)
    shown = watcher(chain.key, quiet=options.json, state=_state)
    try:
        with system.tail.lock(chain.key):
            progress = await bring_up(system, chain, Scope(tuple(watches)), budget=budget, on_change=shown)
    except Busy as error:  # who has the chain takes them up
        found: dict[str, Any] = {"chain": chain.key, "state": "queued", "why": error.message}
    else:
        found = {
            "chain": chain.key, "state": "watched", "blocks": progress.heights, "events": progress.events,
            "rows": progress.rows, "requests": chain.requests, "seconds": round(progress.seconds, 3),
        }  # fmt: skip
    return {**found, "accounts": [of_account(system, chain, each) for each in watches]}


async def _estimate(system: System, chain: Chain, scope: Scope, most: int | None) -> dict[str, Any]:
    """What it would cost to read what is missing."""
    from indexer.account_estimate import estimate
    from indexer.work import missing_of

    work = missing_of(system.tail, chain, scope, (await chain.heads()).finalized, again=True)
    found = await estimate(chain, work, system.seams.clock, max_requests=most)
    return {"chain": chain.key, "state": "estimated", **found}


def _state(progress: Progress) -> str:
    """Where a run stands, in one line, with what is left to ask."""
    done, total = progress.blocks, max(1, progress.blocks_total)
    eta, left = progress.eta_s, progress.requests * (total - done) // done if done else None
    return (
        f"{100 * done // total} % of {progress.heights:,} blocks, {progress.events:,} events, "
        f"{progress.requests:,} requests"
        + (f", about {left:,} more" if left else "")
        + (f", {clock(eta)} left" if eta is not None and done < total else "")
    )


def _show(found: dict[str, Any]) -> None:
    name, accounts = found["chain"], found.get("accounts", ())
    if found["state"] == "estimated":
        _show_estimate(found)
    elif found["state"] == "stopped":
        subscribed = set(found["subscribed"])
        names = [each["account"] for each in accounts if each["account"] not in subscribed]
        print(f"{name}: watched no longer: {', '.join(names) or 'none was'}")
        for address in found["subscribed"]:
            print(f"{name}: {address} stays watched: a client subscribed to it (chainfolio status)")
    elif found["state"] == "queued":
        print(f"{name}: watched from now on; whoever indexes the chain takes them up: {found['why']}")
    else:
        print(f"{name}: {found['blocks']:,} blocks, {found['events']:,} events, {found['rows']:,} rows "
              f"in {found['seconds']:.1f} s with {found['requests']:,} requests")  # fmt: skip
        show_accounts(accounts)


def _show_estimate(found: dict[str, Any]) -> None:
    if not found["blocks"]:
        print(f"{found['chain']}: nothing is missing")
        return
    print(f"{found['chain']}: {found['blocks']:,} blocks are missing: about {found['rows']:,} rows, "
          f"{found['requests']:,} requests, {found['units']:,} compute units, {found['bytes'] / 1e6:,.1f} MB, "
          f"{clock(found['seconds'])}")  # fmt: skip
    print(f"  up to {found['factor']} times as much, or as little: {found['sampled']['requests']:,} requests read "
          f"{found['sampled']['blocks']:,} of the blocks for this")  # fmt: skip
    if found["unread"]:
        print(f"  no endpoint gives {', '.join(found['unread'])}")
