"""`chainfolio pnl ADDRESS…`: gains of addresses, lot by lot, from all indexed transactions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from chainfolio.cli import tax_year
from chainfolio.cli.common import (
    Commands,
    add_csv,
    add_rpc,
    count_text,
    known_or,
    money,
    with_system,
)
from chainfolio.cli.gains import engine_of, show_gains, show_transfers, show_unexplained
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.table import Column, Group, print_wrapped, show_groups
from chainfolio.contracts import GAIN_METHODS, TRADE_VALUES
from chainfolio.engine.gains.pnl import PnlRequest, pnl, zone_of
from chainfolio.errors import BadRequest
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.pnl.report import COLUMNS as SHEET
from chainfolio.portfolio.pnl.tax_year import JURISDICTIONS

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System
    from chainfolio.portfolio.pnl.report import HoldingDocument, PnlDocument, SumsDocument

COLUMNS = (
    Column("asset"),
    Column("wallet"),
    Column("held", "amount"),
    Column("cost USD", "number"),
    Column("open USD", "number"),
    Column("closed USD", "number"),
    Column("why", "note"),
)


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("pnl", parents=[common], help=GROUPS["pnl"], description=__doc__)
    command.add_argument("address", nargs="+", help="the wallets of one owner")
    command.add_argument(
        "--method", choices=GAIN_METHODS, help="which lot is sold first (default fifo, or that of --jurisdiction)"
    )
    command.add_argument("--year", type=int, help="the gains of one tax year, by the rules of --jurisdiction")
    command.add_argument(
        "--jurisdiction", choices=JURISDICTIONS, default="none", help="whose rules --year follows (default none)"
    )
    command.add_argument("--income", action="store_true", help="the income of --year, by day and kind")
    command.add_argument("--currency", default="", help="of --year (default: that of the jurisdiction, else USD)")
    command.add_argument("--per-wallet", action="store_true", help="lots by wallet, not over all wallets")
    command.add_argument("--chain", help="only this chain, by its key")
    command.add_argument(
        "--deposits-are-disposals",
        action="store_true",
        help="a deposit in a protocol sells what is deposited and buys the share",
    )
    command.add_argument(
        "--treat-liquidity",
        choices=("container", "disposal"),
        default="",
        help="liquidity keeps its lots, or is sold for its shares (default: the setting pnl.treat_liquidity)",
    )
    command.add_argument(
        "--received-at",
        choices=("spot", "unknown"),
        default="spot",
        help="what others send costs its price at that time (default), or its cost is unknown",
    )
    command.add_argument(
        "--trade-value",
        choices=TRADE_VALUES,
        default="",
        help="which side of a trade gives both their value: the one with the stronger price, or always the same one "
        "(default: `pnl.trade_value` of the settings, market)",
    )
    command.add_argument(
        "--zone", metavar="NAME", help="the time zone of days (default UTC, or that of --method uk and ca)"
    )
    add_csv(command)
    command.add_argument("--parquet", metavar="FILE", help="write a row for each disposal and lot into FILE")
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the gains of accounts as a table, --json or --csv, or with --year those of a tax year.

    The exit code is 0 even if gains are unknown.

    Raises:
        BadRequest: for --jurisdiction, --currency or --income without --year.
    """
    if options.year is not None:
        return tax_year.run(options, _pnl_request(options))
    if options.jurisdiction != "none" or options.currency or options.income:
        reason = "--jurisdiction, --currency and --income are of a tax year"
        raise BadRequest("year", reason, remedy="add --year, as --year 2025")

    async def read(system: System) -> PnlDocument:
        pnl_request = _pnl_request(options)
        pnl_request.check()
        engine, accounts = await engine_of(system, options)
        return await pnl(engine, accounts, pnl_request)

    gains = with_system(options, read, shares_answers=True)
    show_gains(options, gains, SHEET, lambda: show(gains))
    return 0


def _pnl_request(options: argparse.Namespace) -> PnlRequest:
    """Return the options of the gains from those of the command; the method is FIFO by default.

    Raises:
        BadRequest: There is no time zone of that name, or no default one of the method.
    """
    method = options.method or "fifo"
    return PnlRequest(
        method,
        per_wallet=options.per_wallet,
        deposits_are_disposals=options.deposits_are_disposals,
        received_at_spot=options.received_at == "spot",
        zone=zone_of(options.zone, method),
        networks=(options.chain,) if options.chain else (),
        trade_value=options.trade_value,
        treat_liquidity=options.treat_liquidity,
    )


def show(gains: PnlDocument) -> None:
    """Print holdings and their gains; --csv, --parquet and --json have every disposal."""
    has_several_wallets = any(each.wallet for each in gains.holdings)
    rows: dict[str, list[tuple[str, ...]]] = {}
    for each in gains.holdings:
        rows.setdefault(each.chain, []).append(_cells(each, has_several_wallets))
    title = f"{', '.join(gains.addresses)}: {len(gains.gains)} disposals and incomes, {gains.method}"
    show_groups(title, COLUMNS, [Group(chain, of_chain) for chain, of_chain in rows.items()])
    print_wrapped(_line(gains))
    if gains.unknown:
        print_wrapped(f"of what is known: {_line(gains.known)}", indent=2)
    for reason, count in gains.unknown.items():
        print_wrapped(f"not known in {count_text(count, 'place')}: {reason}", indent=2)
    show_unexplained(gains.unexplained)
    show_transfers(gains.transfers)
    for issue in gains.issues:
        print_wrapped(f"{issue.adapter}: {issue.subject}: {issue.reason}", indent=2)


def _line(sums: PnlDocument | SumsDocument) -> str:
    """Return the sums in one line: open, closed, income, fees and cost, in USD."""
    gain_text = (
        ("open", sums.open_pnl),
        ("closed", sums.closed_pnl),
        ("income", sums.income),
        ("fees", sums.fees),
        ("cost of what is held", sums.total_cost_basis),
    )
    return ", ".join(f"{name} {money(value)}" for name, value in gain_text)


def _asset(each: HoldingDocument) -> str:
    """Return the symbol of an asset (its contract if it has none), with the number of a collectible."""
    number = each.contract.partition(":")[2]
    return f"{each.symbol} #{number}" if each.symbol and number else each.symbol or each.contract


def _cells(each: HoldingDocument, with_wallet: bool) -> tuple[str, ...]:
    """Return the row of a holding: asset, wallet (else empty), amount, cost, open, closed, reason.

    The amount is that held on chain if it is known, else that of the lots.
    """
    return (
        _asset(each),
        each.wallet if with_wallet else "",
        known_or(each.amount if each.held == UNKNOWN else each.held, "?"),
        money(each.total_cost_basis),
        money(each.open_pnl),
        money(each.closed_pnl),
        each.reason,
    )
