"""`chainfolio portfolio ADDRESS…`: what addresses hold and what it is worth, now or at a block; many `--from FILE`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from chainfolio.assets import Account
from chainfolio.errors import BadRequest
from chainfolio.printable import harmless
from cli import wallets
from cli.common import (
    Commands,
    add_csv,
    add_rpc,
    check_chains,
    counted,
    known,
    money,
    show_csv,
    show_issues,
    show_json,
    with_system,
)
from cli.names import accounts_of, is_name, name_of
from cli.table import Column, Group, say, shortened_ids, show_groups

if TYPE_CHECKING:
    from chainfolio.blocks import Block
    from engine.service import Engine
    from indexer.wiring import System
    from portfolio.document import AssetDocument, Portfolio, PositionsDocument, Sources
    from portfolio.facts import Options

COLUMNS = (
    Column("asset"), Column("position"), Column("balance", "amount"), Column("price USD", "amount", rank=1),
    Column("worth USD", "number"),
)  # fmt: skip
SHEET = (
    "address", "chain", "block", "protocol", "position", "name", "side", "symbol", "contract", "balance", "price",
    "value", "spam",
)  # fmt: skip


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("portfolio", parents=[common], help="what addresses hold", description=__doc__)
    command.add_argument("address", nargs="*")
    wallets.add(command)
    command.add_argument("--chain", help="only this chain; needed with --block where several are configured")
    command.add_argument("--block", type=int, metavar="N", help="at this block instead of now")
    command.add_argument("--include-spam", action="store_true", help="let sums have what is taken for spam in them")
    command.add_argument("--sources", action="store_true", help="name block and price source of each number")
    add_csv(command)
    command.add_argument("--names", action="store_true", help="show the ENS names of the addresses")
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    import msgspec

    wallets.check(options)
    if options.file is not None:
        if options.csv:
            raise BadRequest("csv", "--from writes a line for each address", remedy="--json has all of it")
        with_system(options, partial(wallets.show, options=options, listing=_listing(options)))
        return 0
    documents, names = with_system(options, partial(_asked, options=options))
    if options.json:
        show_json(msgspec.to_builtins(documents))
        return 0
    if options.csv:
        show_csv(SHEET, (row for document in documents for row in _sheet(document)))
        show_issues(issue for document in documents for issue in document.issues)
        return 0
    show(documents, names)
    if options.sources:
        for line in _source_lines(documents):
            print(harmless(line))
    for document in documents:
        if options.rpc and any(issue.adapter == "index" for issue in document.issues):
            print(f'  to read what is missing:\n  chainfolio watch {document.address} --rpc "$RPC"')
    return 0


async def _asked(system: System, options: argparse.Namespace) -> tuple[list[Portfolio], dict[str, str]]:
    """The portfolios, and the names of their accounts where names are wanted."""
    accounts = await accounts_of(system, options.address, [options.chain] if options.chain else [])
    shown = _shown(options.sources, spam=options.include_spam, rates=options.json)
    documents = await read(system, accounts, options.chain, options.block, shown)
    named = accounts if options.names or any(map(is_name, options.address)) else []
    names = {each.address: name for each in named if (name := await name_of(system, each)) is not None}
    return documents, names


def _listing(options: argparse.Namespace) -> wallets.Listing[Portfolio]:
    """A portfolio for each of many wallets."""
    from portfolio.document import encode_one

    shown = _shown(options.sources, spam=options.include_spam, rates=options.json)

    async def read_some(engine: Engine, accounts: Sequence[Account], key: str, block: Block) -> list[Portfolio]:
        return await engine.at_pinned(accounts, key, block, shown, past=options.block is not None)

    def line(account: Account, document: Portfolio) -> str:
        return encode_one(document).decode() if options.json else _line(document)

    return wallets.Listing(read_some, line, HEAD)


HEAD = f"{'address':<42}  {'net worth USD':>20}  {'positions':>9}  {'issues':>6}"


def _line(document: Portfolio) -> str:
    positions = sum(
        len(position.protocol_positions)
        for protocol in document.asset_by_protocols.values()
        for chain in protocol.chains.values()
        for position in chain.protocol_positions.values()
    )
    partial = "  partial" if document.completeness == "partial" else ""
    return f"{document.address:<42}  {money(document.networth):>20}  {positions:>9}  {len(document.issues):>6}{partial}"


def _shown(sources: bool, *, spam: bool, rates: bool) -> Options:
    from portfolio.facts import Options

    return Options(sources=sources, explorer_urls=False, images=False, spam=spam, nfts=True, rates=rates)


async def read(
    system: System, accounts: list[Account], chain: str | None, block: int | None, shown: Options
) -> list[Portfolio]:
    """Portfolios over all chains now, or of one chain at a block."""
    from engine.service import Engine

    check_chains(system)
    if block is None and chain is None:
        return await Engine(system).portfolios(accounts, shown, wait=True, wallet_only=False)
    key = wallets.chosen(system, chain, block, accounts)
    if block is None:
        head = (await system.chain(key).heads()).latest
        return await Engine(system).at_pinned(accounts, key, head, shown, past=False)
    return await Engine(system).at_block(accounts, key, block, shown)


def show(documents: Sequence[Portfolio], names: Mapping[str, str]) -> None:
    """Print portfolios as one table with one total, grouped by wallet, protocol and chain; `names` are of addresses."""
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
        say(remark if len(owners_of) == len(documents) else f"{remark} ({', '.join(owners_of)})", indent=2)


def _owner(address: str, names: Mapping[str, str]) -> str:
    return f"{names[address]} ({address})" if address in names else address


def _total(documents: Sequence[Portfolio]) -> str:
    """Return the sum of the net worths that are known, and say if one is not."""
    worths = [known(document.networth, "") for document in documents]
    total = sum((Decimal(worth) for worth in worths if worth), Decimal(0))
    return f"{total:,.2f}" if all(worths) else f"at least {total:,.2f}"


def _groups(document: Portfolio) -> Iterator[Group]:
    """Yield the assets of each protocol on each chain."""
    for protocol in document.asset_by_protocols.values():
        for chain in protocol.chains.values():
            rows = [
                _cells(asset, name, side)
                for position in chain.protocol_positions.values()
                for name, side, asset in _assets(position)
            ]
            if rows:
                yield Group(f"{protocol.name}, {chain.key}", rows)


def _remarks(document: Portfolio) -> Iterator[str]:
    """Yield what the sums leave out, the gains, and the issues."""
    from portfolio.document import UNKNOWN, SpamDocument
    from portfolio.pnl.in_portfolio import ADAPTER

    if document.unpriced_assets:
        yield f"in no sum, for they have no price: {counted(document.unpriced_assets, 'asset')}"
    if document.spam_assets:
        spam = counted(document.spam_assets, "asset")
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
    """Yield the block of each asset, the calls behind its balance and its price, and the price's source and time."""
    from msgspec import UNSET

    yield "sources"
    for document in documents:
        for place, side, asset in _every_asset(document):
            if asset.sources is not UNSET:
                owned = f" ({side})" if side else ""
                yield f"  {asset.symbol or asset.contract}{owned} in {place}, {shortened_ids(document.address)}"
                yield from _of_sources(asset, asset.sources)


def _of_sources(asset: AssetDocument, sources: Sources) -> Iterator[str]:
    yield f"    block {sources.block_number} {sources.block_hash}"
    yield f"    balance {known(asset.balance, '?')}, raw {sources.raw}"
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
    """Yield each asset with the protocol and chain that it is in, and its side, as of `_assets`."""
    for protocol in document.asset_by_protocols.values():
        for chain in protocol.chains.values():
            for position in chain.protocol_positions.values():
                for _, side, asset in _assets(position):
                    yield f"{protocol.name}, {chain.key}", side, asset


def _sheet(document: Portfolio) -> Iterator[list[object]]:
    """A row for each asset with its exact figures; what is owed is as positive as it is in the answer."""
    from msgspec import UNSET

    for protocol in document.asset_by_protocols.values():
        for chain in protocol.chains.values():
            block = document.chains[chain.key].block_number
            for kind, position in chain.protocol_positions.items():
                for nested, side, asset in _assets(position):
                    yield [
                        document.address, chain.key, None if block is UNSET else block, protocol.key, kind, nested,
                        side or "owned", asset.symbol, asset.contract, asset.balance, asset.price, asset.value,
                        None if asset.spam is UNSET else "spam",
                    ]  # fmt: skip


def _cells(asset: AssetDocument, position: str, side: str) -> tuple[str, ...]:
    from portfolio.document import SpamDocument

    sign = "-" if side == "owed" and known(asset.value, "") else ""
    remark = "spam" if isinstance(asset.spam, SpamDocument) else side
    named = f"{asset.symbol or asset.contract}{f' ({remark})' if remark else ''}"
    return named, position, known(asset.balance, "?"), known(asset.price, "-"), sign + money(asset.value)


def _assets(position: PositionsDocument) -> list[tuple[str, str, AssetDocument]]:
    """Each asset with the name of its position, where it has one, and the side of it that is not simply owned."""
    rows = [("", "", asset) for asset in position.assets]
    for nested in position.protocol_positions:
        sides = (("", nested.supply_assets), ("owed", nested.borrow_assets), ("claimable", nested.reward_assets))
        rows += [(nested.name, side, asset) for side, assets in sides for asset in assets]
    return rows
