"""`chainfolio transactions ADDRESS`: the transactions of an address, the newest first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import UNSET, structs

from chainfolio.assets import Account
from chainfolio.cli.common import (
    Commands,
    add_csv,
    add_rpc,
    show_csv,
    show_issues,
    show_json,
    show_table,
    with_system,
)
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.names import account_of
from chainfolio.engine.requests.transactions import joined_pages, transaction_filter, transaction_pages
from chainfolio.engine.results import MAX_PAGE
from chainfolio.engine.service import Engine
from chainfolio.errors import BadRequest
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.transactions import COLUMNS as SHEET
from chainfolio.portfolio.transactions import UNKNOWN_PROTOCOL, transaction_rows

if TYPE_CHECKING:
    from chainfolio.engine.results import TransactionFilter
    from chainfolio.indexer.wiring import System
    from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionDocument, Transactions

COLUMNS = (("time (UTC)", ""), ("type", ""), ("protocol", ""), ("in", "right"), ("out", "right"), ("fee", "right"))
LIMIT = 25


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("transactions", parents=[common], help=GROUPS["transactions"], description=__doc__)
    command.add_argument("address")
    command.add_argument("--chain", help="only this chain, by its key")
    command.add_argument("--limit", type=int, metavar="N", help=f"at most so many (default {LIMIT})")
    command.add_argument("--offset", type=int, default=0, metavar="N", help="leave out the first N (default 0)")
    command.add_argument("--from", dest="first", metavar="DAY", help="only from this day on: YYYY-MM-DD, in UTC")
    command.add_argument("--to", dest="last", metavar="DAY", help="only up to this day, included: YYYY-MM-DD, in UTC")
    command.add_argument("--all", action="store_true", help="all of them; with --csv each row as soon as it is read")
    add_csv(command)
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one page of transactions, or with `--all` every page; the exit code is 0.

    Raises:
        BadRequest: for a limit, an offset or a day out of range, `--limit` beside `--all`, or `--csv` beside `--json`.
    """
    question = _question(options)

    async def read(system: System) -> tuple[Account, Transactions]:
        owner = await account_of(system, options.address, options.chain)
        pages = transaction_pages(Engine(system, max_lookups=None), [owner], question, all_pages=options.all)
        if options.csv:
            return owner, await _stream_csv(pages)
        return owner, joined_pages([page async for page in pages])

    owner, document = with_system(options, read, shares_answers=True)
    if options.json:
        show_json(document)
    elif options.csv:
        show_issues(document.issues)
    else:
        show(owner.address, document)
    return 0


def _question(options: argparse.Namespace) -> TransactionFilter:
    """Return the filter of the options.

    Raises BadRequest for a limit out of range, or options that exclude each other.
    """
    if options.all and options.limit is not None:
        raise BadRequest("limit", "--all has no limit", remedy="leave out one of the two")
    if options.json and options.csv:
        raise BadRequest("csv", "--json and --csv are two forms of one answer", remedy="leave out one of the two")
    limit = MAX_PAGE if options.all else LIMIT if options.limit is None else options.limit
    if not 1 <= limit <= MAX_PAGE:
        raise BadRequest("limit", f"{limit} is not between 1 and {MAX_PAGE}", remedy="--all reads every page")
    return transaction_filter(options.chain, limit, options.offset, options.first, options.last)


async def _stream_csv(pages: AsyncIterator[Transactions]) -> Transactions:
    """Print the rows of each page when it was read; return what the pages lack, without their rows."""
    summaries: list[Transactions] = []
    async for page in pages:
        rows = (row for each in page.transactions for row in transaction_rows(each))
        show_csv(SHEET, rows, header=not summaries)
        sys.stdout.flush()
        summaries.append(structs.replace(page, transactions=()))
    return joined_pages(summaries)


def show(address: str, page: Transactions) -> None:
    """Print a table of transactions, then the issues; --json has hashes, counterparties and the rest.

    Chains are a column if there are several.
    """
    transactions = page.transactions
    has_several_chains = len({each.chain.key for each in transactions}) > 1
    columns = (("chain", ""), *COLUMNS) if has_several_chains else COLUMNS
    title = f"{address}: {len(transactions)} transactions"
    show_table(
        title,
        columns,
        [((each.chain.key,) if has_several_chains else ()) + _cells(each, address) for each in transactions],
    )
    for issue in page.issues:
        print(f"  {issue.adapter}: {issue.subject}: {issue.reason}")


def _cells(each: TransactionDocument, address: str) -> tuple[str, str, str, str, str, str]:
    """Return a row: time, type, protocol, assets in, assets out, and the fee if the address sent it."""
    kinds = sorted({flag.kind.lower() for flag in each.flags} - {each.type.lower()})
    protocol_name = each.protocol.name if each.protocol.key != UNKNOWN_PROTOCOL.key else ""
    fee = f"{each.fees} {each.native_asset_fees.symbol}" if each.sender == address else ""
    return (
        f"{datetime.fromtimestamp(int(each.timestamp), UTC):%Y-%m-%d %H:%M:%S}",
        f"{each.type} ({', '.join(kinds)})" if kinds else each.type,
        protocol_name,
        _assets_text(each.assets_in),
        _assets_text(each.assets_out),
        fee,
    )


def _assets_text(assets: Sequence[TransactionAssetDocument]) -> str:
    """Return a line for each asset: amount (`?` if unknown), symbol or contract, and collectible number."""
    lines = []
    for each in assets:
        amount = "?" if each.balance == UNKNOWN else each.balance
        number = "" if each.nft is UNSET else f" #{each.nft.token_id}"
        lines.append(f"{amount} {each.symbol or each.contract}{number}")
    return "\n".join(lines)
