"""`chainfolio performance ADDRESS…`: returns of wallets over a span, without deposits and withdrawals."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.cli.common import (
    Commands,
    add_csv,
    add_rpc,
    count_text,
    known_or,
    money,
    show_csv,
    show_issues,
    show_json,
    show_table,
    with_system,
)
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.history import days_of, read_values
from chainfolio.cli.names import accounts_of
from chainfolio.cli.table import print_wrapped
from chainfolio.currencies import checked
from chainfolio.engine.history.performance import performance
from chainfolio.engine.named_accounts import chains_with_past
from chainfolio.engine.service import Engine
from chainfolio.portfolio.chart import chart

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System
    from chainfolio.portfolio.metrics.report import PerformanceDocument, ShareDocument

SHEET: Final = ("day", "value", "flow", "growth", "reason")
SHARES: Final = (("part", ""), ("worth USD", "right"), ("share", "right"))
MAX_ASSETS: Final = 10  # in the table


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("performance", parents=[common], help=GROUPS["performance"], description=__doc__)
    command.add_argument("address", nargs="+", help="the wallets of one owner: addresses or names")
    command.add_argument("--from", dest="first", metavar="DAY", help="YYYY-MM-DD (default 30 days before)")
    command.add_argument("--to", dest="last", metavar="DAY", help="YYYY-MM-DD, included (default today)")
    command.add_argument("--chain", action="append", default=[], metavar="KEY", help="only this chain; repeatable")
    command.add_argument("--currency", default="USD", help="of values and returns (default USD)")
    command.add_argument("--plot", action="store_true", help="draw what 100 became, whatever was paid in or taken out")
    command.add_argument("--again", action="store_true", help="read the days anew of which a read failed")
    add_csv(command)
    add_rpc(command, keeps=True)
    command.set_defaults(run=run, interval="day")


def run(options: argparse.Namespace) -> int:
    """Print the performance of accounts by day as a table, --plot, --json or --csv.

    The exit code is 0 even if there are issues.
    """
    performance = with_system(options, lambda system: _read(system, options))
    if options.json:
        show_json(performance)
    elif options.csv:
        show_csv(SHEET, ([known_or(getattr(day, name), "") or None for name in SHEET] for day in performance.days))
        show_issues(performance.issues)
    else:
        show(performance, plot=options.plot)
    return 0


async def _read(system: System, options: argparse.Namespace) -> PerformanceDocument:
    """Return the performance of the accounts, by day, on those of their chains whose past can be read.

    Days that are not stored are read from nodes. Raises BadRequest for an unknown currency.
    """
    checked(options.currency, system.settings.rates)
    days = days_of(system, options)
    accounts = await accounts_of(system, options.address, options.chain)
    chains = chains_with_past(system, accounts, options.chain)
    values = await read_values(system, accounts, chains, days, options)
    return await performance(Engine(system, max_lookups=None), accounts, chains, values, options.currency)


def show(performance: PerformanceDocument, *, plot: bool) -> None:
    """Print rounded figures, a chart if `plot`, and the MAX_ASSETS largest assets; --json has all of it."""
    print(
        f"{', '.join(performance.addresses)}: {performance.first_day or '-'} to {performance.last_day or '-'},"
        f" in {performance.currency}"
    )
    if plot:
        _plot(performance)
    fallen = performance.drawdown
    lines = (
        ("worth at the start", money(performance.start_value)),
        ("paid in less taken out", money(performance.net_flows)),
        ("gain", money(performance.gain)),
        ("worth at the end", money(performance.end_value)),
        ("time-weighted return", _percent(performance.time_weighted_return, performance.time_weighted_yearly)),
        ("money-weighted return", _percent(performance.money_weighted_return, performance.money_weighted_yearly)),
        ("largest fall", f"{_percent(fallen.part)}, {fallen.peak} to {fallen.low}" if fallen else "-"),
    )
    for name, value in lines:
        print(f"  {name:<24}{value}")
    _show_changes(performance)
    for title, shares in (("chains", performance.exposure.chains), ("protocols", performance.exposure.protocols)):
        if len(shares) > 1:
            show_table(title, SHARES, list(map(_cells, shares)))
    if performance.exposure.assets:
        show_table(
            f"assets on {performance.last_day}", SHARES, list(map(_cells, performance.exposure.assets[:MAX_ASSETS]))
        )
    for reason in performance.reasons:
        print(f"  not known: {reason}")
    for remark in performance.remarks:
        print(f"  {remark}")
    for issue in performance.issues:
        print(f"  {issue.adapter}: {issue.subject}: {issue.reason}")
    if performance.exposure.unpriced:
        print(f"  {count_text(len(performance.exposure.unpriced), 'asset')} without a price: in no value")


def _show_changes(performance: PerformanceDocument) -> None:
    """Print the parts of the change of value that are not zero, then each unexplained difference.

    Of an unknown change only the reason is printed, and nothing if the report prints its reasons.
    """
    changes = performance.changes
    if changes.reason and performance.reasons:
        return
    if changes.reason:
        print(f"  change of value: not known: {changes.reason}")
        return
    print("  change of value")
    for name, value in (
        ("from outside", changes.flows),
        ("realised gains", changes.realised),
        ("change of open gains", changes.unrealised),
        ("income", changes.income),
        ("fees", amounts.text(Decimal(changes.fees).copy_negate())),
        ("loans", changes.debts),
        ("rewards to claim", changes.rewards),
        ("not explained", amounts.text(amounts.total([Decimal(row.value) for row in changes.unexplained]))),
    ):
        if Decimal(value):
            print(f"    {name:<22}{money(value)}")
    for row in changes.unexplained:
        block = "" if row.first_block is None else f" since block {row.first_block}"
        asset = row.symbol or row.contract or "the total"
        print_wrapped(f"does not close: {asset}{block}, {money(row.value)}: {row.reason}", indent=4)


def _cells(share: ShareDocument) -> tuple[str, ...]:
    name = f"{share.symbol} on {share.key.partition(':')[0]}" if share.symbol else share.key
    return name, money(share.value), _percent(share.share)


def _percent(part: str, yearly: str = "N/A") -> str:
    """Return a share of 1 in per cent, `-` if it is unknown; a known yearly rate follows in brackets."""
    if known_or(part, "") == "":
        return "-"
    text = f"{Decimal(part) * 100:,.2f} %"
    return text if known_or(yearly, "") == "" else f"{text} ({Decimal(yearly) * 100:,.2f} % a year)"


def _plot(performance: PerformanceDocument) -> None:
    """Print the growth by day in percent as a chart of the terminal's size."""
    points: Sequence[tuple[date, Decimal | None]] = [
        (date.fromisoformat(day.day), None if known_or(day.growth, "") == "" else Decimal(day.growth) * 100)
        for day in performance.days
    ]
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    width, height = shutil.get_terminal_size((80, 24))
    print("\n".join(chart(points, width - 1, min(height - 4, 24), braille=encoding.startswith("utf"))))
