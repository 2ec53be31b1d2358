"""`chainfolio pnl ADDRESS…`: what addresses gained, lot by lot, from all transactions that are indexed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from chainfolio.contracts import GAIN_METHODS
from chainfolio.errors import BadRequest
from cli.common import (
    Commands,
    add_csv,
    add_rpc,
    check_chains,
    counted,
    known,
    money,
    show_csv,
    show_issues,
    show_json,
    with_system,
)
from cli.names import accounts_of
from cli.table import Column, Group, say, show_groups

if TYPE_CHECKING:
    from datetime import tzinfo

    from indexer.wiring import System
    from portfolio.pnl.report import HoldingDocument, PnlDocument, SumsDocument

COLUMNS = (
    Column("asset"), Column("wallet"), Column("held", "amount"), Column("cost USD", "number"),
    Column("open USD", "number"), Column("closed USD", "number"), Column("why", "note"),
)  # fmt: skip


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("pnl", parents=[common], help="what addresses gained", description=__doc__)
    command.add_argument("address", nargs="+", help="the wallets of one owner")
    command.add_argument(
        "--method", choices=GAIN_METHODS, default="fifo", help="which lot is sold first (default fifo)"
    )
    command.add_argument("--per-wallet", action="store_true", help="lots by wallet, not over all wallets")
    command.add_argument("--chain", help="only this chain, by its key")
    command.add_argument(
        "--deposits-are-disposals", action="store_true",
        help="a deposit in a protocol sells what is deposited and buys the share",
    )  # fmt: skip
    command.add_argument(
        "--received-at", choices=("spot", "unknown"), default="spot",
        help="what others send costs its price at that time (default), or its cost is unknown",
    )  # fmt: skip
    command.add_argument(
        "--zone", metavar="NAME", help="the time zone of days (default UTC; Europe/London with --method uk)"
    )
    add_csv(command)
    command.add_argument("--parquet", metavar="FILE", help="write a row for each disposal and lot into FILE")
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    zone = _zone(options.zone or ("Europe/London" if options.method == "uk" else "UTC"))

    async def read(system: System) -> PnlDocument:
        from engine.pnl import PnlRequest, pnl
        from engine.service import Engine

        networks = (options.chain,) if options.chain else ()
        wanted = PnlRequest(
            options.method, options.per_wallet, options.deposits_are_disposals, options.received_at == "spot", zone,
            networks,
        )  # fmt: skip
        wanted.check()
        accounts = await accounts_of(system, options.address, [options.chain] if options.chain else [])
        check_chains(system)
        return await pnl(Engine(system), accounts, wanted)

    found = with_system(options, read)
    if options.parquet:
        from portfolio.pnl.report import frame

        frame(found.gains).write_parquet(options.parquet)
    if options.json:
        show_json(found)
    elif options.csv:
        from portfolio.pnl.report import COLUMNS as SHEET

        show_csv(SHEET, ([getattr(gain, name) for name in gain.__struct_fields__] for gain in found.gains))
        show_issues(found.issues)
    else:
        show(found)
    return 0


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadRequest("zone", f"there is no time zone {name!r}", remedy="for example Europe/London") from None


def show(found: PnlDocument) -> None:
    """What is held and what it gained, for people; every disposal is in --csv, --parquet and --json."""
    several = any(each.wallet for each in found.holdings)
    rows: dict[str, list[tuple[str, ...]]] = {}
    for each in found.holdings:
        rows.setdefault(each.chain, []).append(_cells(each, several))
    title = f"{', '.join(found.addresses)}: {len(found.gains)} disposals and incomes, {found.method}"
    show_groups(title, COLUMNS, [Group(chain, of_chain) for chain, of_chain in rows.items()])
    say(_line(found))
    if found.unknown:
        say(f"of what is known: {_line(found.known)}", indent=2)
    for reason, count in found.unknown.items():
        say(f"not known in {counted(count, 'place')}: {reason}", indent=2)
    for issue in found.issues:
        say(f"{issue.adapter}: {issue.subject}: {issue.reason}", indent=2)


def _line(sums: PnlDocument | SumsDocument) -> str:
    shown = (
        ("open", sums.open_pnl), ("closed", sums.closed_pnl), ("income", sums.income), ("fees", sums.fees),
        ("cost of what is held", sums.total_cost_basis),
    )  # fmt: skip
    return ", ".join(f"{name} {money(value)}" for name, value in shown)


def _asset(each: HoldingDocument) -> str:
    """Return the symbol of an asset, with its number if it is one of a collection; its contract if it has no symbol."""
    number = each.contract.partition(":")[2]
    return f"{each.symbol} #{number}" if each.symbol and number else each.symbol or each.contract


def _cells(each: HoldingDocument, several: bool) -> tuple[str, ...]:
    return (
        _asset(each), each.wallet if several else "", known(each.amount, "?"),
        money(each.total_cost_basis), money(each.open_pnl), money(each.closed_pnl), each.reason,
    )  # fmt: skip
