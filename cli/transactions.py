"""`chainfolio transactions ADDRESS`: what an address did, the newest first."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chainfolio.assets import Account
from chainfolio.errors import BadRequest
from cli.common import (
    Commands,
    add_csv,
    add_rpc,
    check_chains,
    show_csv,
    show_issues,
    show_json,
    show_table,
    with_system,
)
from cli.names import account_of

if TYPE_CHECKING:
    from indexer.wiring import System
    from portfolio.transactions import TransactionAssetDocument, TransactionDocument, Transactions

COLUMNS = (("time (UTC)", ""), ("type", ""), ("protocol", ""), ("in", "right"), ("out", "right"), ("fee", "right"))
SHEET = (
    "chain", "block", "time", "hash", "type", "flags", "protocol", "from", "to", "direction", "symbol", "contract",
    "tokenId", "amount", "price", "value", "fee", "feeSymbol",
)  # fmt: skip
LIMIT = 25
MAX_LIMIT = 250  # as over HTTP


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("transactions", parents=[common], help="what an address did", description=__doc__)
    command.add_argument("address")
    command.add_argument("--chain", help="only this chain, by its key")
    command.add_argument("--limit", type=int, default=LIMIT, metavar="N", help=f"at most so many (default {LIMIT})")
    add_csv(command)
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if not 1 <= options.limit <= MAX_LIMIT:
        raise BadRequest("limit", f"{options.limit} is not between 1 and {MAX_LIMIT}")

    async def read(system: System) -> tuple[Account, Transactions]:
        from engine.answers import TransactionFilter
        from engine.service import Engine

        owner = await account_of(system, options.address, options.chain)
        check_chains(system)
        networks = (options.chain,) if options.chain else ()
        wanted = TransactionFilter(options.limit, 0, networks=networks)
        return owner, (await Engine(system).transactions([owner], wanted)).document

    owner, page = with_system(options, read)
    if options.json:
        show_json(page)
    elif options.csv:
        show_csv(SHEET, (row for each in page.transactions for row in _sheet(each, owner.address)))
        show_issues(page.issues)
    else:
        show(owner.address, page)
    return 0


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
