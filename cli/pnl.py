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
    known,
    money,
    show_csv,
    show_issues,
    show_json,
    show_table,
    with_system,
)
from cli.names import accounts_of

if TYPE_CHECKING:
    from datetime import tzinfo

    from indexer.wiring import System
    from portfolio.pnl.report import HoldingDocument, PnlDocument, SumsDocument

COLUMNS = (
    ("chain", ""), ("asset", ""), ("wallet", ""), ("held", "right"), ("cost USD", "right"), ("open USD", "right"),
    ("closed USD", "right"), ("why not known", ""),
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
    show_table(
        f"{', '.join(found.addresses)}: {len(found.gains)} disposals and incomes, {found.method}",
        COLUMNS, [_cells(each, several) for each in found.holdings],
    )  # fmt: skip
    print(_line(found))
    if found.unknown:
        print(f"  of what is known: {_line(found.known)}")
    for reason, count in found.unknown.items():
        print(f"  not known in {count} places: {reason}")
    for issue in found.issues:
        print(f"  {issue.adapter}: {issue.subject}: {issue.reason}")


def _line(sums: PnlDocument | SumsDocument) -> str:
    shown = (
        ("open", sums.open_pnl), ("closed", sums.closed_pnl), ("income", sums.income), ("fees", sums.fees),
        ("cost of what is held", sums.total_cost_basis),
    )  # fmt: skip
    return ", ".join(f"{name} {money(value)}" for name, value in shown)


def _cells(each: HoldingDocument, several: bool) -> tuple[str, ...]:
    return (
        each.chain, each.symbol or each.contract, each.wallet if several else "", known(each.amount, "?"),
        money(each.total_cost_basis), money(each.open_pnl), money(each.closed_pnl), each.reason,
    )  # fmt: skip
