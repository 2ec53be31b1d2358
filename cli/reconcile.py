"""`chainfolio reconcile ADDRESS…`: prove that histories are complete, by balances at many blocks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from chainfolio import amounts
from chainfolio.assets import asset
from chainfolio.cli.common import Commands, add_rpc, show_json, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.names import accounts_of
from chainfolio.cli.progress_bar import duration_text
from chainfolio.cli.table import Column, Group, print_wrapped, show_groups
from chainfolio.engine.reconcile.estimate import estimate
from chainfolio.engine.reconcile.reconciler import Reconciler
from chainfolio.engine.requests.reconciliations import Extent, on_each_chain, reconciliations
from chainfolio.engine.wiring import snapshotter_of

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.contracts import Token
    from chainfolio.engine.reconciliations import Difference, Reconciliation
    from chainfolio.indexer.wiring import System

DIFFERS, NOT_SHOWN = 12, 13
COLUMNS = (
    Column("asset"),
    Column("block", "number"),
    Column("amount", "amount"),
    Column("cause"),
    Column("why", "note"),
)
Names = Callable[[str], "Token | None"]
T = TypeVar("T")
Work = Callable[["System", "Chain", Sequence[str], argparse.Namespace], Awaitable[list[T]]]


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("reconcile", parents=[common], help=GROUPS["reconcile"], description=__doc__)
    command.add_argument("address", nargs="+", help="addresses of any kind, or names")
    command.add_argument("--chain", action="append", default=[], metavar="KEY", help="only on this chain; repeatable")
    command.add_argument("--from", dest="first", type=int, metavar="N", help="first block (default: as indexed)")
    command.add_argument("--to", dest="last", type=int, metavar="N", help="last block (default: as indexed)")
    command.add_argument(
        "--checkpoints", type=int, metavar="N", default=32, help="blocks at which balances are compared (default: 32)"
    )
    command.add_argument("--max-requests", type=int, metavar="N", help="end after so many requests to each chain")
    command.add_argument("--estimate", action="store_true", help="say what it would cost, and do not run")
    add_rpc(command, keeps=True)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the differences between indexed movements and balances on chain, or with --estimate the cost.

    The exit code is 12 if a trusted asset differs, else 13 if one could not be read or is not indexed, else 0.
    """
    extent = Extent(options.first, options.last, options.checkpoints, options.max_requests)
    if options.estimate:
        estimates = with_system(options, lambda system: _each_chain(system, options, partial(_estimate, extent)))
        if options.json:
            show_json(estimates)
        else:
            _print_estimates(estimates)
        return 0
    reconciliations = with_system(
        options, lambda system: _each_chain(system, options, partial(_reconcile_chain, extent))
    )
    if options.json:
        show_json([result for result, _ in reconciliations])
    else:
        for result, names in reconciliations:
            _show(result, names)
    if any(result.differences for result, _ in reconciliations):
        return DIFFERS
    return 0 if all(result.is_equal for result, _ in reconciliations) else NOT_SHOWN


async def _each_chain(system: System, options: argparse.Namespace, work: Work[T]) -> list[T]:
    """Run `work` on each chain in turn. See `on_each_chain`."""
    accounts = await accounts_of(system, options.address, options.chain)
    return await on_each_chain(
        system, accounts, options.chain, lambda chain, addresses: work(system, chain, addresses, options)
    )


async def _reconcile_chain(
    extent: Extent, system: System, chain: Chain, addresses: Sequence[str], options: argparse.Namespace
) -> list[tuple[Reconciliation, Names]]:
    """Compare addresses on a chain; return each result with the names of its tokens.

    Progress goes to standard error, unless --json is given.
    """

    def report_progress(text: str) -> None:
        if not options.json:
            print(f"{chain.key}: {text} …", file=sys.stderr)

    results, tokens = await reconciliations(chain, snapshotter_of(system, chain), addresses, extent, report_progress)
    return [(result, lambda name: tokens.get(asset(name).collection)) for result in results]


async def _estimate(
    extent: Extent, system: System, chain: Chain, addresses: Sequence[str], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return the cost of a comparison as the only element of a list, as other work on a chain."""
    reconciler = Reconciler(
        chain,
        system.lake,
        system.tail,
        extent.checkpoints,
        max_requests=extent.max_requests,
        trust_of=snapshotter_of(system, chain).trust,
    )
    return [await estimate(reconciler, addresses, options.first, options.last, system.environment.clock)]


def _print_estimates(estimates: Sequence[dict[str, Any]]) -> None:
    """Print two sentences for the comparison of each chain: the cost, and how far it may be off.

    The second one also has the number of assets that differ between checkpoints, and of requests that compared them.
    """
    for each in estimates:
        print_wrapped(
            f"{each['chain']}: about {each['balances']:,} balances over {each['blocks']:,} blocks, "
            f"{each['requests']:,} requests, {each['bytes'] / 1e6:,.1f} MB, {duration_text(each['seconds'])}"
        )
        print_wrapped(
            f"up to {each['factor']} times as much, or as little: {each['differing']:,} assets differ between the "
            f"first and the last checkpoint, by {each['sampled']['requests']:,} requests",
            indent=2,
        )


def _show(reconciliation: Reconciliation, names: Names) -> None:
    """Print one account: its differences, unreadable and untrusted assets, compared checkpoints and notes."""
    counts = (
        ", ".join(f"{count:,} {status}" for status, count in reconciliation.counts.items() if count)
        or "nothing to compare"
    )
    span = f"{reconciliation.first_block:,} to {reconciliation.last_block:,}"
    title = f"{reconciliation.address} on {reconciliation.chain}, blocks {span}: {counts}"
    if reconciliation.differences:
        show_groups(title, COLUMNS, [Group("", [_row(each, names) for each in reconciliation.differences])])
    else:
        print_wrapped(title)
    for each in reconciliation.assets:
        if each.status in ("unreadable", "unindexed"):
            print_wrapped(f"{each.status}: {_asset_name(each.asset, names)}", indent=2)
    for apart in reconciliation.untrusted:
        names_text = ", ".join(_asset_name(name, names) for name in apart.assets)
        rest_text = f" and {apart.count - len(apart.assets):,} more" if apart.count > len(apart.assets) else ""
        print_wrapped(f"untrusted, listed apart: {names_text}{rest_text}: {apart.reason}", indent=2)
    for name in reconciliation.more:
        print_wrapped(f"more blocks differ than are listed: {_asset_name(name, names)}", indent=2)
    read = len(reconciliation.checkpoints) - len(reconciliation.unread_checkpoints)
    print_wrapped(
        f"compared at {read} of {len(reconciliation.checkpoints)} checkpoints,"
        f" the last with hash {reconciliation.block_hash}",
        indent=2,
    )
    for note in reconciliation.notes:
        print_wrapped(f"note: {note}", indent=2)


def _row(each: Difference, names: Names) -> tuple[str, ...]:
    """Return a row of COLUMNS: asset, block or range, difference, cause, reason.

    The difference is scaled by the token's decimals; raw for a collectible, or if they are unknown.
    """
    token = names(each.asset)
    scaled = each.amount
    if token is not None and token.decimals is not None and not asset(each.asset).is_collectible:
        scaled = amounts.text(amounts.amount(int(each.amount), token.decimals))
    block = f"{each.block:,}" if each.after == each.block - 1 else f"{each.after + 1:,} to {each.block:,}"
    return _asset_name(each.asset, names), block, scaled, each.cause, each.reason


def _asset_name(name: str, names: Names) -> str:
    """Return the symbol, contract and collectible number of an asset; of a native coin only the symbol."""
    token, parsed = names(name), asset(name)
    symbol = token.symbol if token else ""
    if parsed.is_native:
        return symbol
    number = f" #{parsed.token_id}" if parsed.is_collectible else ""
    return f"{symbol} {parsed.reference}{number}".strip()
