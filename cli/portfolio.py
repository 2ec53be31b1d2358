"""`chainfolio portfolio ADDRESS…`: holdings of addresses and their value, now or at a block."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from chainfolio.assets import Account
from chainfolio.cli import wallets
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
    with_system,
)
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.names import accounts_of
from chainfolio.cli.nfts import show_nfts
from chainfolio.cli.table import Column, Group, print_wrapped, shortened_ids, show_groups
from chainfolio.engine.named_accounts import is_name, name_of
from chainfolio.engine.requests.portfolios import portfolios
from chainfolio.engine.service import Engine
from chainfolio.errors import BadRequest
from chainfolio.portfolio.document import ASSETS, UNKNOWN, SpamDocument, asset_rows, encode_one, sided_assets
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.pnl.in_portfolio import ADAPTER
from chainfolio.printable import harmless

if TYPE_CHECKING:
    from chainfolio.blocks import Block
    from chainfolio.indexer.wiring import System
    from chainfolio.portfolio.document import AssetDocument, Portfolio, Sources

COLUMNS = (
    Column("asset"),
    Column("position"),
    Column("balance", "amount"),
    Column("price USD", "amount", rank=1),
    Column("worth USD", "number"),
)


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("portfolio", parents=[common], help=GROUPS["portfolio"], description=__doc__)
    command.add_argument("address", nargs="*")
    wallets.add(command)
    command.add_argument("--chain", help="only this chain; needed with --block where several are configured")
    command.add_argument("--block", type=int, metavar="N", help="at this block instead of now")
    command.add_argument("--include-spam", action="store_true", help="let sums have what is taken for spam in them")
    command.add_argument("--nfts", action="store_true", help="show collectibles with what their metadata say")
    command.add_argument("--sources", action="store_true", help="name block and price source of each number")
    add_csv(command)
    command.add_argument("--names", action="store_true", help="show the ENS names of the addresses")
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print portfolios as a table, --json or --csv, or with --from one line for each address.

    The exit code is 0 even if there are issues.

    Raises:
        BadRequest: for --csv together with --from or --nfts.
    """
    wallets.check(options)
    if options.nfts and options.csv:
        raise BadRequest("nfts", "--csv has a row for each asset with a price", remedy="--json has collectibles")
    if options.file is not None:
        if options.csv:
            raise BadRequest("csv", "--from writes a line for each address", remedy="--json has all of it")
        with_system(options, partial(wallets.show, options=options, listing=_listing(options)))
        return 0
    documents, names = with_system(options, partial(_read_portfolios, options=options))
    if options.json:
        show_json(msgspec.to_builtins(documents))
        return 0
    if options.csv:
        show_csv(ASSETS, (row for document in documents for row in asset_rows(document)))
        show_issues(issue for document in documents for issue in document.issues)
        return 0
    _show_text(documents, names, options)
    return 0


def _show_text(documents: Sequence[Portfolio], names: Mapping[str, str], options: argparse.Namespace) -> None:
    """Print portfolios as a table, with collectibles, sources and hints as the options ask."""
    show(documents, names)
    if options.nfts:
        show_nfts(documents, spam=options.include_spam)
    if options.sources:
        for line in _source_lines(documents):
            print(harmless(line))
    for document in documents:
        if options.rpc and any(issue.adapter == "index" for issue in document.issues):
            print(f'  to read what is missing:\n  chainfolio watch {document.address} --rpc "$RPC"')


async def _read_portfolios(system: System, options: argparse.Namespace) -> tuple[list[Portfolio], dict[str, str]]:
    """Return the portfolios, and the ENS names of accounts with `--names` or if one was given by name."""
    accounts = await accounts_of(system, options.address, [options.chain] if options.chain else [])
    document_options = _document_options(options)
    documents = await portfolios(Engine(system), accounts, options.chain, options.block, document_options)
    named_accounts = accounts if options.names or any(map(is_name, options.address)) else []
    names = {each.address: name for each in named_accounts if (name := await name_of(system, each)) is not None}
    return documents, names


def _listing(options: argparse.Namespace) -> wallets.Listing[Portfolio]:
    """Return how portfolios of many wallets are read and printed: a line each, or JSON with --json."""
    document_options = _document_options(options)

    async def read_some(engine: Engine, accounts: Sequence[Account], key: str, block: Block) -> list[Portfolio]:
        return await engine.at_pinned(accounts, key, block, document_options, past=options.block is not None)

    def line(account: Account, document: Portfolio) -> str:
        return encode_one(document).decode() if options.json else _line(document)

    return wallets.Listing(read_some, line, HEAD)


HEAD = f"{'address':<42}  {'net worth USD':>20}  {'positions':>9}  {'issues':>6}"


def _line(document: Portfolio) -> str:
    """Return a portfolio's line for --from: address, net worth, counts of positions and of issues."""
    positions = sum(
        len(position.protocol_positions)
        for protocol in document.asset_by_protocols.values()
        for chain in protocol.chains.values()
        for position in chain.protocol_positions.values()
    )
    partial = "  partial" if document.completeness == "partial" else ""
    return f"{document.address:<42}  {money(document.networth):>20}  {positions:>9}  {len(document.issues):>6}{partial}"


def _document_options(options: argparse.Namespace) -> Options:
    """Return the parts of documents that the command's options ask for; collectibles are listed in each."""
    return Options(
        sources=options.sources,
        spam=options.include_spam,
        nfts=True,
        nft_metadata=options.nfts,
        rates=options.json,
    )


def show(documents: Sequence[Portfolio], names: Mapping[str, str]) -> None:
    """Print portfolios as one table with one total, grouped by wallet, protocol and chain.

    `names` holds the names of addresses.
    """
    owners = {each.address: _owner(each.address, names) for each in documents}
    if len(documents) == 1:
        (document,) = documents
        at = f" at block {document.block_number}" if isinstance(document.block_number, str) else ""
        show_groups(f"{owners[document.address]}{at}: {money(document.networth)} USD", COLUMNS, list(_groups(document)))
    else:
        groups = [
            group
            for document in documents
            for group in (Group(f"{owners[document.address]}: {money(document.networth)} USD", ()), *_groups(document))
        ]
        show_groups(f"{len(documents)} wallets: {_total(documents)} USD", COLUMNS, groups)
    remarks: dict[str, list[str]] = {}
    for document in documents:
        for remark in dict.fromkeys(_remarks(document)):
            remarks.setdefault(remark, []).append(names.get(document.address, shortened_ids(document.address)))
    for remark, owners_of in remarks.items():
        print_wrapped(remark if len(owners_of) == len(documents) else f"{remark} ({', '.join(owners_of)})", indent=2)


def _owner(address: str, names: Mapping[str, str]) -> str:
    return f"{names[address]} ({address})" if address in names else address


def _total(documents: Sequence[Portfolio]) -> str:
    """Return the sum of the known net worths, as "at least …" if one is unknown."""
    values = [known_or(document.networth, "") for document in documents]
    total = sum((Decimal(value) for value in values if value), Decimal(0))
    return f"{total:,.2f}" if all(values) else f"at least {total:,.2f}"


def _groups(document: Portfolio) -> Iterator[Group]:
    """Yield the assets of each protocol on each chain."""
    for protocol in document.asset_by_protocols.values():
        for chain in protocol.chains.values():
            rows = [
                _cells(asset, name, side)
                for position in chain.protocol_positions.values()
                for name, side, asset in sided_assets(position)
            ]
            if rows:
                yield Group(f"{protocol.name}, {chain.key}", rows)


def _remarks(document: Portfolio) -> Iterator[str]:
    """Yield lines: assets without a price, spam and why it is, gains if any is known, and issues.

    Issues of the gains are left to `chainfolio pnl`.
    """
    if document.unpriced_assets:
        yield f"in no sum, for they have no price: {count_text(document.unpriced_assets, 'asset')}"
    if document.spam_assets:
        spam = count_text(document.spam_assets, "asset")
        yield f"in no sum unless --include-spam says so, for they are taken for spam: {spam}"
        for _, _, asset in _every_asset(document):
            if isinstance(asset.spam, SpamDocument):
                yield f"{asset.symbol or asset.contract}: {', '.join(asset.spam.reasons)}"
    gains = document.open_pnl, document.closed_pnl, document.total_cost_basis
    if any(gain != UNKNOWN for gain in gains):
        opened, closed, cost = map(money, gains)
        yield f"gains: open {opened}, closed {closed}, cost {cost} (chainfolio pnl shows them lot by lot)"
    for issue in document.issues:
        if issue.adapter != ADAPTER:  # why gains are not known: chainfolio pnl says it
            yield f"{issue.adapter}: {issue.subject}: {issue.reason}"


def _source_lines(documents: Sequence[Portfolio]) -> Iterator[str]:
    """Yield a line for each asset: its block, the calls of its balance and price, and the price's source."""
    yield "sources"
    for document in documents:
        for position, side, asset in _every_asset(document):
            if asset.sources is not UNSET:
                owned = f" ({side})" if side else ""
                yield f"  {asset.symbol or asset.contract}{owned} in {position}, {shortened_ids(document.address)}"
                yield from _of_sources(asset, asset.sources)


def _of_sources(asset: AssetDocument, sources: Sources) -> Iterator[str]:
    """Yield the lines of an asset's sources: block, raw balance, price and the calls that were read."""
    yield f"    block {sources.block_number} {sources.block_hash}"
    yield f"    balance {known_or(asset.balance, '?')}, raw {sources.raw}"
    if sources.price_source is None:
        yield "    price: no source has one"
    else:
        detail = f", {sources.detail}" if sources.detail else ""
        time = f" of {sources.price_time}" if sources.price_time else ""
        yield f"    price {asset.price}: {sources.price_source}{time}, confidence {sources.confidence}{detail}"
    for call in sources.calls:
        read = f"{call.signature or call.method} of {call.contract}" if call.contract else call.method
        yield f"    {call.number}: {read}({', '.join(call.arguments)}) = {', '.join(call.result)}"


def _every_asset(document: Portfolio) -> Iterator[tuple[str, str, AssetDocument]]:
    """Yield the protocol and chain, the side, and the asset, for each asset.

    The side is `owed`, `claimable`, or empty for owned assets.
    """
    for protocol in document.asset_by_protocols.values():
        for chain in protocol.chains.values():
            for position in chain.protocol_positions.values():
                for _, side, asset in sided_assets(position):
                    yield f"{protocol.name}, {chain.key}", side, asset


def _cells(asset: AssetDocument, position: str, side: str) -> tuple[str, ...]:

    sign = "-" if side == "owed" and known_or(asset.value, "") else ""
    remark = "spam" if isinstance(asset.spam, SpamDocument) else side
    name = f"{asset.symbol or asset.contract}{f' ({remark})' if remark else ''}"
    return name, position, known_or(asset.balance, "?"), known_or(asset.price, "-"), sign + money(asset.value)
