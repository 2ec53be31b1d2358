"""`chainfolio performance ADDRESS…`: what wallets earned over a span, apart from what was paid in and taken out.

The values are those of `chainfolio history`, read once and kept. What came from outside and what was taken out is in
the index: without it no return is said.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from cli.common import (
    Commands,
    add_csv,
    add_rpc,
    counted,
    known,
    money,
    show_csv,
    show_issues,
    show_json,
    show_table,
    with_system,
)
from cli.names import accounts_of, chains_with_past

if TYPE_CHECKING:
    from indexer.wiring import System
    from portfolio.metrics.report import PerformanceDocument, ShareDocument

SHEET: Final = ("day", "value", "flow", "growth", "reason")
SHARES: Final = (("part", ""), ("worth USD", "right"), ("share", "right"))
MAX_ASSETS: Final = 10  # in the table


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser(
        "performance", parents=[common], help="what wallets earned over a span", description=__doc__
    )
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
    """Run the command."""
    found = with_system(options, lambda system: _read(system, options))
    if options.json:
        show_json(found)
    elif options.csv:
        show_csv(SHEET, ([known(getattr(day, name), "") or None for name in SHEET] for day in found.days))
        show_issues(found.issues)
    else:
        show(found, plot=options.plot)
    return 0


async def _read(system: System, options: argparse.Namespace) -> PerformanceDocument:
    from chainfolio.currencies import checked
    from cli.history import days_of, read_values
    from engine.performance import performance
    from engine.service import Engine

    checked(options.currency, system.settings.rates)
    days = days_of(options, datetime.fromtimestamp(system.seams.clock.now_us() // 1_000_000, UTC).date())
    accounts = await accounts_of(system, options.address, options.chain)
    chains = chains_with_past(system, accounts, options.chain)
    values = await read_values(system, accounts, chains, days, options)
    return await performance(Engine(system), accounts, chains, values, options.currency)


def show(found: PerformanceDocument, *, plot: bool) -> None:
    """The figures for people; the exact ones, every day and every flow are in --json."""
    print(f"{', '.join(found.addresses)}: {found.first_day or '-'} to {found.last_day or '-'}, in {found.currency}")
    if plot:
        _plot(found)
    fallen = found.drawdown
    lines = (
        ("worth at the start", money(found.start_value)),
        ("paid in less taken out", money(found.net_flows)),
        ("gain", money(found.gain)),
        ("worth at the end", money(found.end_value)),
        ("time-weighted return", _percent(found.time_weighted_return, found.time_weighted_yearly)),
        ("money-weighted return", _percent(found.money_weighted_return, found.money_weighted_yearly)),
        ("largest fall", f"{_percent(fallen.part)}, {fallen.peak} to {fallen.low}" if fallen else "-"),
    )
    for name, value in lines:
        print(f"  {name:<24}{value}")
    for title, shares in (("chains", found.exposure.chains), ("protocols", found.exposure.protocols)):
        if len(shares) > 1:
            show_table(title, SHARES, list(map(_cells, shares)))
    if found.exposure.assets:
        show_table(f"assets on {found.last_day}", SHARES, list(map(_cells, found.exposure.assets[:MAX_ASSETS])))
    for reason in found.reasons:
        print(f"  not known: {reason}")
    for remark in found.remarks:
        print(f"  {remark}")
    for issue in found.issues:
        print(f"  {issue.adapter}: {issue.subject}: {issue.reason}")
    if found.exposure.unpriced:
        print(f"  {counted(len(found.exposure.unpriced), 'asset')} without a price: in no value")


def _cells(share: ShareDocument) -> tuple[str, ...]:
    name = f"{share.symbol} on {share.key.partition(':')[0]}" if share.symbol else share.key
    return name, money(share.value), _percent(share.share)


def _percent(part: str, yearly: str = "N/A") -> str:
    """A part as people read it; the rate a year beside it where there is one."""
    if known(part, "") == "":
        return "-"
    shown = f"{Decimal(part) * 100:,.2f} %"
    return shown if known(yearly, "") == "" else f"{shown} ({Decimal(yearly) * 100:,.2f} % a year)"


def _plot(found: PerformanceDocument) -> None:
    import shutil
    import sys

    from portfolio.chart import chart

    points: Sequence[tuple[date, Decimal | None]] = [
        (date.fromisoformat(day.day), None if known(day.growth, "") == "" else Decimal(day.growth) * 100)
        for day in found.days
    ]
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    width, height = shutil.get_terminal_size((80, 24))
    print("\n".join(chart(points, width - 1, min(height - 4, 24), braille=encoding.startswith("utf"))))
