"""`chainfolio export KIND ADDRESS…`: files for spreadsheets, accountants, tax tools and ledgers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainfolio.cli.common import Commands, add_rpc, count_text, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.names import accounts_of
from chainfolio.contracts import GAIN_METHODS
from chainfolio.engine.service import Engine
from chainfolio.exports.formats import FORMATS, check_target, export
from chainfolio.exports.sources import KINDS, ExportRequest
from chainfolio.portfolio.pnl.tax_year import JURISDICTIONS

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Summary
    from chainfolio.indexer.wiring import System

MAX_ISSUES: Final = 5


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("export", parents=[common], help=GROUPS["export"], description=__doc__)
    command.add_argument("kind", choices=KINDS, help="what is exported")
    command.add_argument("address", nargs="+", help="the wallets of one owner")
    command.add_argument("--format", choices=FORMATS, default="", help="the format of the file (default csv)")
    command.add_argument(
        "-o", "--output", metavar="FILE", help="the file (default: standard output); needed for parquet, xlsx and pdf"
    )
    command.add_argument("--chain", help="only this chain, by its key")
    command.add_argument("--block", type=int, metavar="N", help="holdings at this block of --chain")
    command.add_argument("--from", dest="first", metavar="DAY", help="transactions or history from this day on, in UTC")
    command.add_argument("--to", dest="last", metavar="DAY", help="transactions or history up to this day, included")
    command.add_argument("--year", type=int, help="gains or income of one tax year, by the rules of --jurisdiction")
    command.add_argument(
        "--jurisdiction", choices=JURISDICTIONS, default="none", help="whose rules --year follows (default none)"
    )
    command.add_argument(
        "--method",
        choices=GAIN_METHODS,
        default="",
        help="which lot is sold first (default fifo, or that of the rules)",
    )
    command.add_argument("--currency", default="", help="of --year (default: that of the jurisdiction, else USD)")
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the file and print its summary to standard error; return 0, also if it is partial.

    Options are checked before anything is read.
    """
    format_name = options.format or ("json" if options.json else "csv")
    request = ExportRequest(
        chain=options.chain,
        block=options.block,
        first=options.first,
        last=options.last,
        year=options.year,
        jurisdiction=options.jurisdiction,
        method=options.method,
        currency=options.currency,
    )
    path = Path(options.output) if options.output else None
    check_target(format_name, options.kind, path, request)

    async def read(system: System) -> Summary:
        accounts = await accounts_of(system, options.address, [options.chain] if options.chain else [])
        engine = Engine(system, max_lookups=None)
        return await export(engine, options.kind, accounts, request, target=(format_name, path), stream=sys.stdout)

    _report(with_system(options, read, shares_answers=True))
    return 0


def _report(summary: Summary) -> None:
    """Print to standard error what was written."""
    text = f"{count_text(summary.rows, 'row')}, {summary.completeness}, SHA-256 of the data {summary.digest}"
    print(text, file=sys.stderr)
    for issue in summary.issues[:MAX_ISSUES]:
        print(f"  {issue}", file=sys.stderr)
    if len(summary.issues) > MAX_ISSUES:
        print(f"  and {count_text(len(summary.issues) - MAX_ISSUES, 'other issue')}", file=sys.stderr)
