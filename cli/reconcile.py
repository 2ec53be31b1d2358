"""`chainfolio reconcile ADDRESS…`: prove that histories are complete, by the balances on chain at many blocks.

At each checkpoint the balance of every asset is the sum of its movements in the index. Where it is not, the first block
of the difference is found and named. The result is kept until one of its blocks goes or is indexed anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from chainfolio import amounts
from chainfolio.assets import asset
from chainfolio.blocks import Block
from chainfolio.errors import BadRequest, NotIndexed, SourceError
from cli.common import Commands, add_rpc, show_json, with_system
from cli.names import accounts_of, chains_with_past
from cli.progress_bar import clock
from cli.table import Column, Group, say, show_groups

if TYPE_CHECKING:
    from chainfolio.assets import Asset
    from chainfolio.chains import Chain
    from chainfolio.contracts import Token
    from engine.reconciled import Difference, Reconciliation
    from indexer.wiring import System

DIFFERS, NOT_SHOWN = 12, 13
COLUMNS = (
    Column("asset"), Column("block", "number"), Column("amount", "amount"), Column("cause"), Column("why", "note"),
)  # fmt: skip
Names = Callable[[str], "Token | None"]
T = TypeVar("T")
Work = Callable[["System", "Chain", Sequence[str], argparse.Namespace], Awaitable[list[T]]]


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser(
        "reconcile", parents=[common], help="prove that histories are complete", description=__doc__
    )
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
    """Run the command; the exit code is 12 if a trusted asset differs, 13 if one could not be read."""
    if options.first is not None and options.first < 0:
        raise BadRequest("from", "a block height is at least 0")
    for name, value in (("checkpoints", options.checkpoints), ("max-requests", options.max_requests)):
        if value is not None and value < 1:
            raise BadRequest(name, "at least 1")
    if options.estimate:
        estimates = with_system(options, lambda system: _each_chain(system, options, _estimate))
        if options.json:
            show_json(estimates)
        else:
            _show_estimates(estimates)
        return 0
    found = with_system(options, lambda system: _each_chain(system, options, _one))
    if options.json:
        show_json([result for result, _ in found])
    else:
        for result, names in found:
            _show(result, names)
    if any(result.differences for result, _ in found):
        return DIFFERS
    return 0 if all(result.is_equal for result, _ in found) else NOT_SHOWN


async def _each_chain(system: System, options: argparse.Namespace, work: Work[T]) -> list[T]:
    """Some work on each chain in turn, with the accounts of its kind; of chains that nobody named, on those where they
    are indexed."""
    accounts = await accounts_of(system, options.address, options.chain)
    found: list[T] = []
    lacking: list[NotIndexed] = []
    for chain in chains_with_past(system, accounts, options.chain):
        addresses = [each.address for each in accounts if each.kind == chain.kind]
        try:
            found += await work(system, chain, addresses, options) if addresses else []
        except NotIndexed as error:
            lacking.append(error)
    if lacking and (options.chain or not found):
        raise lacking[0]
    return found


async def _one(
    system: System, chain: Chain, addresses: Sequence[str], options: argparse.Namespace
) -> list[tuple[Reconciliation, Names]]:
    from engine.reconcile import Reconciler
    from engine.wiring import snapshotter_of

    def told(text: str) -> None:
        if not options.json:
            print(f"{chain.key}: {text} …", file=sys.stderr)

    snapshotter, native = snapshotter_of(system, chain), chain.info.native
    reconciler = Reconciler(
        chain, system.lake, system.tail, options.checkpoints, max_requests=options.max_requests, told=told,
        trust_of=snapshotter.trust,
    )  # fmt: skip
    results = await reconciler.run(addresses, options.first, options.last)
    assets: set[Asset] = {asset(each.asset).collection for result in results for each in result.assets}
    end = Block(results[0].last_block, results[0].block_hash, "", 0)
    known = snapshotter.book.known(assets, end) | {native.asset: native}
    differing = {asset(each.asset).collection for result in results for each in result.differences} - known.keys()
    if differing:
        with suppress(SourceError):  # without names the result is the same
            known |= (await snapshotter.known(differing, end)).tokens
    return [(result, lambda name: known.get(asset(name).collection)) for result in results]


async def _estimate(
    system: System, chain: Chain, addresses: Sequence[str], options: argparse.Namespace
) -> list[dict[str, Any]]:
    from engine.reconcile import Reconciler
    from engine.reconcile_estimate import estimate
    from engine.wiring import snapshotter_of

    reconciler = Reconciler(
        chain, system.lake, system.tail, options.checkpoints, max_requests=options.max_requests,
        trust_of=snapshotter_of(system, chain).trust,
    )  # fmt: skip
    return [await estimate(reconciler, addresses, options.first, options.last, system.seams.clock)]


def _show_estimates(estimates: Sequence[dict[str, Any]]) -> None:
    for each in estimates:
        say(
            f"{each['chain']}: about {each['balances']:,} balances over {each['blocks']:,} blocks, "
            f"{each['requests']:,} requests, {each['bytes'] / 1e6:,.1f} MB, {clock(each['seconds'])}"
        )
        say(
            f"up to {each['factor']} times as much, or as little: {each['differing']:,} assets differ between the "
            f"first and the last checkpoint, by {each['sampled']['requests']:,} requests", indent=2,
        )  # fmt: skip


def _show(found: Reconciliation, names: Names) -> None:
    """One account: a table of its differences, what could not be read, and what the result is worth."""
    counts = ", ".join(f"{count:,} {status}" for status, count in found.counts.items() if count) or "nothing to compare"
    title = f"{found.address} on {found.chain}, blocks {found.first_block:,} to {found.last_block:,}: {counts}"
    if found.differences:
        show_groups(title, COLUMNS, [Group("", [_row(each, names) for each in found.differences])])
    else:
        say(title)
    for each in found.assets:
        if each.status in ("unreadable", "unindexed"):
            say(f"{each.status}: {_named(each.asset, names)}", indent=2)
    for apart in found.untrusted:
        shown = ", ".join(_named(name, names) for name in apart.assets)
        more = f" and {apart.count - len(apart.assets):,} more" if apart.count > len(apart.assets) else ""
        say(f"untrusted, listed apart: {shown}{more}: {apart.reason}", indent=2)
    for name in found.more:
        say(f"more blocks differ than are listed: {_named(name, names)}", indent=2)
    read = len(found.checkpoints) - len(found.unread_checkpoints)
    say(f"compared at {read} of {len(found.checkpoints)} checkpoints, the last with hash {found.block_hash}", indent=2)
    for note in found.notes:
        say(f"note: {note}", indent=2)


def _row(each: Difference, names: Names) -> tuple[str, ...]:
    token = names(each.asset)
    scaled = each.amount
    if token is not None and token.decimals is not None and not asset(each.asset).is_collectible:
        scaled = amounts.text(amounts.amount(int(each.amount), token.decimals))
    block = f"{each.block:,}" if each.after == each.block - 1 else f"{each.after + 1:,} to {each.block:,}"
    return _named(each.asset, names), block, scaled, each.cause, each.reason


def _named(name: str, names: Names) -> str:
    """An asset as people know it, with its contract: many tokens share a symbol."""
    token, what = names(name), asset(name)
    symbol = token.symbol if token else ""
    if what.is_native:
        return symbol
    number = f" #{what.token_id}" if what.is_collectible else ""
    return f"{symbol} {what.reference}{number}".strip()
