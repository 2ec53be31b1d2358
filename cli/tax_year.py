"""`chainfolio pnl --year YEAR`: the gains of one tax year, by the rules of a jurisdiction."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from chainfolio.cli.common import count_text, money, show_csv, show_issues, show_json, with_system
from chainfolio.cli.gains import engine_of, show_gains, show_transfers, show_unexplained
from chainfolio.cli.table import Column, Group, print_wrapped, show_groups
from chainfolio.engine.gains.tax_year import YearRequest, tax_year_report
from chainfolio.portfolio.pnl.income import INCOME_COLUMNS, income_frame
from chainfolio.portfolio.pnl.tax_year import JURISDICTIONS, TAX_COLUMNS

if TYPE_CHECKING:
    from chainfolio.engine.gains.pnl import PnlRequest
    from chainfolio.indexer.wiring import System
    from chainfolio.portfolio.pnl.tax_year import TaxYearDocument


def run(options: argparse.Namespace, treatment: PnlRequest) -> int:
    """Print the gains of a tax year as a table, --json or --csv; 0 even if gains are unknown.

    With --income its incomes are printed instead. Raises BadRequest for a year, method or currency that the rules
    refuse.
    """
    rules = JURISDICTIONS[options.jurisdiction]
    zone = treatment.zone if options.zone else None
    request = YearRequest(options.year, rules, options.method or "", options.currency.upper(), zone, treatment)
    request.pnl_request()

    async def read(system: System) -> TaxYearDocument:
        return await tax_year_report(*await engine_of(system, options), request)

    report = with_system(options, read, shares_answers=True)
    if options.income:
        _write_incomes(options, report)
    else:
        show_gains(options, report, TAX_COLUMNS, lambda: _show(report, rules.name))
    return 0


def _write_incomes(options: argparse.Namespace, report: TaxYearDocument) -> None:
    """Print the income of a year as a table or --csv, or the whole report with --json.

    --parquet also writes the income to a file.
    """
    if options.parquet:
        income_frame(report.incomes).write_parquet(options.parquet)
    if options.json:
        show_json(report)
        return
    if options.csv:
        rows = ([getattr(row, name) for name in row.__struct_fields__] for row in report.incomes)
        show_csv(INCOME_COLUMNS, rows)
        show_issues(report.issues)
        return
    columns = (
        Column("day"),
        Column("kind"),
        Column("asset"),
        Column("amount", "amount"),
        Column(f"value {report.currency}", "number"),
        Column("why", "note"),
    )
    cells = [
        (row.day, row.kind, row.symbol or row.contract, row.amount, money(row.value), row.reason)
        for row in report.incomes
    ]
    title = f"{', '.join(report.addresses)}: income, {report.first_day} to {report.last_day}"
    show_groups(title, columns, [Group("", cells)])
    print_wrapped(f"income {money(report.income)}")


def _show(report: TaxYearDocument, name: str) -> None:
    """Print the sums of a year; --csv, --parquet and --json have every disposal."""
    unit = report.currency
    columns = (
        Column("kind"),
        Column("gains", "number"),
        Column(f"proceeds {unit}", "number"),
        Column(f"cost {unit}", "number"),
        Column(f"gain {unit}", "number"),
        Column("of what is known", "number"),
        Column("not known", "number"),
    )
    rows = [
        (
            each.term,
            str(each.count),
            *map(money, (each.proceeds, each.cost, each.gain, each.known_gain)),
            str(each.unknown),
        )
        for each in report.terms
    ]
    lots = "lots by wallet" if report.lots_by_wallet else "lots over all wallets"
    days = f"{report.first_day} to {report.last_day}"
    show_groups(f"{', '.join(report.addresses)}: {days}, {name}, {report.method}, {lots}", columns, [Group("", rows)])
    print_wrapped(f"income {money(report.income)}, fees {money(report.fees)}")
    if report.exempt_limit:
        print_wrapped(f"all gains of the year are exempt below {report.exempt_limit} {unit} (other gains included)")
    for reason, count in report.unknown.items():
        print_wrapped(f"not known in {count_text(count, 'place')}: {reason}", indent=2)
    show_unexplained(report.unexplained)
    show_transfers(report.transfers)
    for issue in report.issues:
        print_wrapped(f"{issue.adapter}: {issue.subject}: {issue.reason}", indent=2)
