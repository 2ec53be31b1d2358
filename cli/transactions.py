"""`chainfolio transactions ADDRESS`: the transactions of an address, the newest first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from chainfolio.assets import Account
from chainfolio.errors import BadRequest
from cli.common import (
    Commands,
    add_csv,
    add_rpc,
    check_chains,
    parse_day,
    show_csv,
    show_issues,
    show_json,
    show_table,
    with_system,
)
from cli.names import account_of

if TYPE_CHECKING:
    from engine.answers import TransactionFilter
    from indexer.wiring import System
    from portfolio.transactions import TransactionAssetDocument, TransactionDocument, Transactions

COLUMNS = (("time (UTC)", ""), ("type", ""), ("protocol", ""), ("in", "right"), ("out", "right"), ("fee", "right"))
SHEET = (
    "chain", "block", "time", "hash", "type", "flags", "protocol", "from", "to", "direction", "symbol", "contract",
    "tokenId", "amount", "price", "value", "fee", "feeSymbol",
)  # fmt: skip
LIMIT = 25
MAX_LIMIT = 250  # as over HTTP
MAX_OFFSET = 10**9
DAY_US = 86_400_000_000


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("transactions", parents=[common], help="what an address did", description=__doc__)
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
    """Print one page of transactions, or with `--all` every page.

    Raises:
        BadRequest: for a limit, an offset or a day out of range, or `--limit` beside `--all`.
    """
    question = _question(options)

    async def read(system: System) -> tuple[Account, Transactions]:
        owner = await account_of(system, options.address, options.chain)
        check_chains(system)
        pages = _pages(system, owner, question, every=options.all)
        if options.csv:
            return owner, await _stream_csv(owner, pages)
        return owner, _joined([page async for page in pages])

    owner, document = with_system(options, read)
    if options.json:
        show_json(document)
    elif options.csv:
        show_issues(document.issues)
    else:
        show(owner.address, document)
    return 0


def _question(options: argparse.Namespace) -> TransactionFilter:
    from engine.answers import TransactionFilter

    if options.all and options.limit is not None:
        raise BadRequest("limit", "--all has no limit", remedy="leave out one of the two")
    if options.json and options.csv:
        raise BadRequest("csv", "--json and --csv are two forms of one answer", remedy="leave out one of the two")
    limit = MAX_LIMIT if options.all else LIMIT if options.limit is None else options.limit
    if not 1 <= limit <= MAX_LIMIT:
        raise BadRequest("limit", f"{limit} is not between 1 and {MAX_LIMIT}", remedy="--all reads every page")
    if not 0 <= options.offset <= MAX_OFFSET:
        raise BadRequest("offset", f"{options.offset} is not between 0 and {MAX_OFFSET}")
    since_us = None if options.first is None else _day_us("from", options.first)
    until_us = None if options.last is None else _day_us("to", options.last) + DAY_US - 1
    if since_us is not None and until_us is not None and since_us > until_us:
        raise BadRequest("from", f"{options.first} is after {options.last}")
    networks = (options.chain,) if options.chain else ()
    return TransactionFilter(limit, options.offset, networks=networks, since_us=since_us, until_us=until_us)


def _day_us(name: str, written: str) -> int:
    """Return the beginning of a day in UTC as microseconds."""
    day = parse_day(name, written)
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000


async def _pages(
    system: System, owner: Account, question: TransactionFilter, *, every: bool
) -> AsyncIterator[Transactions]:
    """Yield one page, or every page from its place on. A page goes on behind the one before it, whatever blocks came or
    were replaced meanwhile."""
    from engine.service import Engine

    engine = Engine(system)
    while True:
        page = await engine.transactions([owner], question)
        yield page.document
        if not every or page.reached is None:
            return
        question = replace(question, offset=page.reached.count, after=page.reached)


async def _stream_csv(owner: Account, pages: AsyncIterator[Transactions]) -> Transactions:
    """Print the rows of each page when it was read; return what the pages lack, without their rows."""
    seen: list[Transactions] = []
    async for page in pages:
        rows = (row for each in page.transactions for row in _sheet(each, owner.address))
        show_csv(SHEET, rows, header=not seen)
        sys.stdout.flush()
        seen.append(structs.replace(page, transactions=()))
    return _joined(seen)


def _joined(pages: Sequence[Transactions]) -> Transactions:
    """Return one document of several pages: partial if one of them is, each issue once."""
    if len(pages) == 1:
        return pages[0]
    partial = [page for page in pages if page.completeness == "partial"]
    issues = {msgspec.json.encode(issue): issue for page in pages for issue in page.issues}
    return structs.replace(
        (partial or pages)[0],
        transactions=tuple(each for page in pages for each in page.transactions),
        issues=tuple(issues.values()),
    )


def show(address: str, page: Transactions) -> None:
    """A table for people; hashes, counterparties and everything else are in --json."""
    shown = page.transactions
    several = len({each.chain.key for each in shown}) > 1
    columns = (("chain", ""), *COLUMNS) if several else COLUMNS
    title = f"{address}: {len(shown)} transactions"
    show_table(title, columns, [((each.chain.key,) if several else ()) + _cells(each, address) for each in shown])
    for issue in page.issues:
        print(f"  {issue.adapter}: {issue.subject}: {issue.reason}")


def _sheet(each: TransactionDocument, address: str) -> Iterator[list[object]]:
    """A row for each asset that moved, or one where none did; the fee is in the first, so that it is summed once."""
    from msgspec import UNSET

    time = datetime.fromtimestamp(int(each.timestamp), UTC)
    about = [
        each.chain.key, each.block_number, f"{time:%Y-%m-%dT%H:%M:%SZ}", each.hash, each.type,
        " ".join(sorted({flag.kind for flag in each.flags})), each.protocol.key, each.sender, each.recipient,
    ]  # fmt: skip
    fee = [each.fees, each.native_asset_fees.symbol] if each.sender == address else [None, None]
    moved = [("in", asset) for asset in each.assets_in] + [("out", asset) for asset in each.assets_out]
    for direction, asset in moved:
        number = None if asset.nft is UNSET else asset.nft.token_id
        cells = [direction, asset.symbol, asset.contract, number, asset.balance, asset.price, asset.value]
        yield [*about, *cells, *fee]
        fee = [None, None]
    if not moved:
        yield [*about, *[None] * 7, *fee]


def _cells(each: TransactionDocument, address: str) -> tuple[str, str, str, str, str, str]:
    from portfolio.transactions import UNKNOWN_PROTOCOL

    kinds = sorted({flag.kind.lower() for flag in each.flags} - {each.type.lower()})
    named = each.protocol.name if each.protocol.key != UNKNOWN_PROTOCOL.key else ""
    fee = f"{each.fees} {each.native_asset_fees.symbol}" if each.sender == address else ""
    return (
        f"{datetime.fromtimestamp(int(each.timestamp), UTC):%Y-%m-%d %H:%M:%S}",
        f"{each.type} ({', '.join(kinds)})" if kinds else each.type,
        named, _moved(each.assets_in), _moved(each.assets_out), fee,
    )  # fmt: skip


def _moved(assets: Sequence[TransactionAssetDocument]) -> str:
    """One line an asset: how much of what, and which one of a collection."""
    from msgspec import UNSET

    from portfolio.document import UNKNOWN

    lines = []
    for each in assets:
        amount = "?" if each.balance == UNKNOWN else each.balance
        number = "" if each.nft is UNSET else f" #{each.nft.token_id}"
        lines.append(f"{amount} {each.symbol or each.contract}{number}")
    return "\n".join(lines)
