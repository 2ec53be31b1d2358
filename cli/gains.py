"""Parts that the reports of gains share: the engine that they ask, and their forms of output."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chainfolio.cli.common import show_csv, show_issues, show_json
from chainfolio.cli.names import accounts_of
from chainfolio.cli.progress_bar import record_progress
from chainfolio.cli.table import print_wrapped
from chainfolio.engine.named_accounts import check_chains
from chainfolio.engine.service import Engine
from chainfolio.portfolio.pnl.report import frame

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.indexer.wiring import System
    from chainfolio.portfolio.pnl.report import PnlDocument, UnexplainedDocument
    from chainfolio.portfolio.pnl.tax_year import TaxYearDocument
    from chainfolio.portfolio.pnl.transfer_rows import TransferDocument


async def engine_of(system: System, options: argparse.Namespace) -> tuple[Engine, list[Account]]:
    """Return an engine that shows its progress, and the accounts of the options.

    Raises errors of `accounts_of`.
    """
    accounts = await accounts_of(system, options.address, [options.chain] if options.chain else [])
    check_chains(system)
    show_progress = record_progress("pnl", system, quiet=options.json)
    return Engine(system, max_lookups=None, progress=show_progress, adds_gains=False), list(accounts)


def show_gains(
    options: argparse.Namespace,
    report: PnlDocument | TaxYearDocument,
    columns: Sequence[str],
    show: Callable[[], None],
) -> None:
    """Print a report as JSON, as CSV of its gains, or by `show`; --parquet also writes them to a file.

    With CSV, issues go to standard error.
    """
    if options.parquet:
        frame(report.gains, columns).write_parquet(options.parquet)
    if options.json:
        show_json(report)
    elif options.csv:
        show_csv(columns, ([getattr(gain, name) for name in gain.__struct_fields__] for gain in report.gains))
        show_issues(report.issues)
    else:
        show()


def show_transfers(transfers: Sequence[TransferDocument]) -> None:
    """Print a line for each transfer whose other side is not known; --json has all transfers."""
    for each in transfers:
        if each.reason:
            side = (each.amount, each.chain, each.transaction, "left")
            amount, chain, transaction, verb = (
                side if each.transaction else (each.arrived, each.to_chain, each.to_transaction, "came to")
            )
            print_wrapped(
                f"over a bridge: {amount} {each.symbol} {verb} {chain} in {transaction}: {each.reason}", indent=2
            )


def show_unexplained(rows: Sequence[UnexplainedDocument]) -> None:
    """Print a line for each asset that does not close."""
    for row in rows:
        block = "" if row.first_block is None else f" since block {row.first_block}"
        asset = row.symbol or row.contract
        print_wrapped(f"does not close: {row.amount} {asset} in the {row.place}{block}: {row.reason}", indent=2)
