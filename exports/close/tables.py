"""The tables of a close: columns and rows, all cells text. An unknown number is `N/A`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio import amounts
from chainfolio.exports.close.accounting import (
    ENTRY_COLUMNS,
    GAIN_COLUMNS,
    LOT_COLUMNS,
    OPENING,
    REMAINING_COLUMNS,
    ROLLFORWARD_COLUMNS,
    Accounting,
    AssetTable,
    accounting,
    gain_rows,
    lot_rows,
    remaining_rows,
    rollforward_rows,
)
from chainfolio.exports.close.valued import UNVALUED
from chainfolio.exports.csv_file import plain_cell
from chainfolio.portfolio.compose import call_document, clean
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.pnl.entries import AssetFacts, Entry, Kind, iso_time, sort_entries
from chainfolio.portfolio.pnl.income import INCOME_COLUMNS, income_rows
from chainfolio.portfolio.transactions import COLUMNS as TRANSACTION_COLUMNS
from chainfolio.portfolio.transactions import transaction_rows

if TYPE_CHECKING:
    from chainfolio.assets import Asset
    from chainfolio.contracts import Price
    from chainfolio.exports.close.books import Books
    from chainfolio.exports.close.valued import ChainEnd, HoldingRow
    from chainfolio.exports.dataset import Row

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "accounts": ("address", "kind"),
    "assets": ("asset", "symbol", "decimals"),
    "balances": (
        *("account", "chain", "asset", "countsAs", "opening", "closing", "moved", "unexplained"),
        *("openingEvidence", "closingEvidence"),
    ),
    "blocks": ("end", "day", "chain", "caip2", "height", "hash", "time", "rate", "header"),
    "closings": ("asset", "wallet", "moved", "inWallet", "inProtocols", "deposited", "difference"),
    "entries": ENTRY_COLUMNS,
    "gains": GAIN_COLUMNS,
    "holdings": (
        *("end", "account", "chain", "protocol", "position", "name", "side", "asset", "countsAs", "symbol", "decimals"),
        *("raw", "price", "value", "flag"),
    ),
    "income": INCOME_COLUMNS,
    "issues": ("adapter", "subject", "reason", "count"),
    "lots": LOT_COLUMNS,
    "movements": (
        *("account", "chain", "block", "txIndex", "logIndex", "item", "transaction", "direction", "counterparty"),
        *("asset", "raw"),
    ),
    "prices": (
        *("end", "chain", "asset", "symbol", "usd", "source", "observed", "confidence", "detail", "alternatives"),
        *("calls", "price", "rule"),
    ),
    "proofs": ("end", "chain", "account", "asset", "address", "accountProof", "key", "rule", "storageProof"),
    "remaining": REMAINING_COLUMNS,
    "rollforward": ROLLFORWARD_COLUMNS,
    "transactions": ("address", *TRANSACTION_COLUMNS),
}


@dataclass(frozen=True, slots=True)
class CloseTables:
    """The rows of each table by its name, and the accounting behind them."""

    rows: Mapping[str, Sequence[Row]]
    accounting: Accounting
    values: Mapping[tuple[str, str], Decimal | None]


def tables_of(books: Books) -> CloseTables:
    """Return the tables of some books; they have the names and columns of COLUMNS."""
    shown = AssetTable({**dict(_held_facts(books)), **books.facts})
    unclosed = {key for key, each in books.current.closings.items() if not each.is_closed}
    entries = sort_entries(books.entries)
    result = accounting(entries, books.method, books.opening_us, books.closing_us, unclosed)
    values = values_by_asset(
        (each.end.name, _counts_as(books, each.end, each.part.holding.token.asset), each.signed)
        for each in books.holdings
        if each.is_counted
    )
    rows: dict[str, Iterable[Row]] = {
        "accounts": [(each.address, each.kind) for each in books.request.accounts],
        "assets": [(key, each.symbol, str(each.decimals)) for key, each in sorted(shown.facts.items())],
        "balances": _balance_rows(books),
        "blocks": map(_block_row, books.ends),
        "closings": [
            (
                *key,
                *map(str, (each.moved, each.held.in_wallet, each.held.in_protocols, each.deposited)),
                str(each.difference),
            )
            for key, each in books.current.closings.items()
        ],
        "entries": map(entry_row, entries),
        "gains": gain_rows(result, shown),
        "holdings": [*(_holding_row(books, each) for each in books.holdings), *_other_rows(books)],
        "income": _income(books, result, shown),
        "issues": [
            (each.adapter, each.subject, each.reason, "1" if each.count is msgspec.UNSET else str(each.count))
            for each in books.issues
        ],
        "lots": lot_rows(result, shown),
        "movements": _movement_rows(books),
        "prices": [row for end in books.ends for row in _price_rows(books, end)],
        "proofs": [row for end in books.ends for row in _proof_rows(end)],
        "remaining": remaining_rows(result, shown),
        "rollforward": rollforward_rows(result, values, shown),
        "transactions": [(each.user.address, *row) for each in books.transactions for row in transaction_rows(each)],
    }
    return CloseTables({name: [plain_row(row) for row in rows[name]] for name in COLUMNS}, result, values)


def values_by_asset(parts: Iterable[tuple[str, str, Decimal | None]]) -> dict[tuple[str, str], Decimal | None]:
    """Return the sum of values by end and asset; None if a part is not known."""
    values: dict[tuple[str, str], Decimal | None] = {}
    for end, asset, value in parts:
        before = values.get((end, asset), amounts.ZERO)
        values[end, asset] = None if before is None or value is None else amounts.total([before, value])
    return values


def entry_row(entry: Entry) -> Row:
    """Return an entry as a row of ENTRY_COLUMNS; an unknown value is empty."""
    return tuple("" if each is None else str(each) for each in entry)


def entry_in(cells: Sequence[str]) -> Entry:
    """Return the entry of a row of ENTRY_COLUMNS; ValueError if a number is none."""
    row = dict(zip(ENTRY_COLUMNS, cells, strict=True))
    return Entry(
        time_us=int(row["time_us"]),
        kind=msgspec.convert(row["kind"], Kind),
        asset=row["asset"],
        quantity=int(row["quantity"]),
        value=int(row["value"]) if row["value"] else None,
        fee=int(row["fee"]),
        wallet=row["wallet"],
        transaction=row["transaction"],
        to=row["to"],
        order=int(row["order"]),
        reason=row["reason"],
    )


def plain_row(row: Row) -> Row:
    """Return a row of texts that start no formula: the same cells go to CSV and to Parquet."""
    return tuple(plain_cell(clean("" if cell is None else str(cell))) for cell in row)


def _counts_as(books: Books, end: ChainEnd, asset: Asset) -> str:
    """Return the key of an asset in gains, after aliases such as the wrapped native coin."""
    return _key(books, end.chain.key, asset)


def _key(books: Books, chain: str, asset: Asset) -> str:
    number = f":{asset.token_id}" if asset.token_id else ""
    key = f"{chain}:{asset.shown_contract}{number}"
    return books.aliases.get(key, key)


def _held_facts(books: Books) -> Iterator[tuple[str, AssetFacts]]:
    for each in books.holdings:
        token = each.part.holding.token
        key = _counts_as(books, each.end, token.asset)
        yield key, AssetFacts(token.symbol, token.decimals or 0, *key.partition(":")[::2])


def _balance_rows(books: Books) -> Iterator[Row]:
    for row in books.balances:
        numbers = [UNKNOWN if each is None else str(each) for each in (row.opening, row.closing)]
        unexplained = UNKNOWN if row.unexplained is None else str(row.unexplained)
        yield (
            *(row.key.account, row.chain, str(row.key.asset), _key(books, row.chain, row.key.asset)),
            *(*numbers, str(row.moved), unexplained, *row.classes),
        )


def _block_row(end: ChainEnd) -> Row:
    block = end.block
    caip2 = end.chain.info.native.asset.chain
    return (
        *(end.name, end.day, end.chain.key, caip2, str(block.height), block.hash, iso_time(block.time_us)),
        amounts.text(end.rate),
        f"0x{end.evidence.header.hex()}" if end.evidence.header else "",
    )


def _proof_rows(end: ChainEnd) -> Iterator[Row]:
    """Yield a row for each proven balance at an end; nodes of tries are lists of hex."""
    for key, proof in sorted(end.evidence.proofs.items(), key=lambda item: item[0]):
        account_nodes, storage_nodes = (
            json.dumps([f"0x{node.hex()}" for node in nodes]) for nodes in (proof.account_nodes, proof.storage_nodes)
        )
        place = end.name, end.chain.key, key.account, str(key.asset), proof.address
        yield (*place, account_nodes, proof.key, proof.rule, storage_nodes)


def _holding_row(books: Books, row: HoldingRow) -> Row:
    holding, price = row.part.holding, row.end.price(row.part.holding.token.asset)
    token = holding.token
    return (
        *(row.end.name, holding.account, row.end.chain.key, row.protocol, row.position, row.name, row.side),
        *(str(token.asset), _counts_as(books, row.end, token.asset), token.symbol),
        *("" if token.decimals is None else str(token.decimals), str(holding.raw)),
        *(UNKNOWN if each is None else amounts.text(each) for each in (price, row.value)),
        row.flag,
    )


def _other_rows(books: Books) -> Iterator[Row]:
    """Yield rows without values for balances that no holding shows, such as collectibles."""
    held = {
        (each.end.name, each.part.holding.account, each.part.holding.token.asset)
        for each in books.holdings
        if each.protocol == "wallet"
    }
    priced = {row[:3]: row[-2] for end in books.ends for row in _price_rows(books, end)}
    for end in books.ends:
        for row in books.balances:
            raw, asset = row.opening if end.name == OPENING else row.closing, row.key.asset
            if row.chain != end.chain.key or not raw or (end.name, row.key.account, asset) in held:
                continue
            price = priced.get((end.name, row.chain, str(asset)), UNKNOWN)
            place = end.name, row.key.account, row.chain, "wallet", "", "share or collectible", "owned"
            yield (*place, str(asset), _key(books, row.chain, asset), "", "", str(raw), price, UNKNOWN, UNVALUED)


def _movement_rows(books: Books) -> Iterator[Row]:
    for each in books.movements:
        place = map(str, (each.height, *each.position))
        yield (
            *(each.account, each.chain, *place, each.transaction, each.direction, each.counterparty),
            *(str(each.asset), str(each.raw)),
        )


def _price_rows(books: Books, end: ChainEnd) -> Iterator[Row]:
    """Yield a row for each asset that is held at an end and has a price, or an override."""
    tokens = {row.part.holding.token.asset: row.part.holding.token for row in books.holdings if row.end is end}
    for asset, token in sorted(tokens.items()):
        price, used = end.prices.get(asset), end.price(asset)
        if used is None:
            continue
        cells = ("", "", "", "", "", "[]", "[]") if price is None else _price_cells(price)
        rule = end.rule(asset, books.request.policy).rule
        yield (end.name, end.chain.key, str(asset), token.symbol, *cells, amounts.text(used), rule)


def _price_cells(price: Price) -> tuple[str, ...]:
    others = [[each.source, amounts.text(each.usd)] for each in price.alternatives]
    calls = msgspec.json.encode([call_document("price", each) for each in price.calls]).decode()
    observed, sure = iso_time(price.time_us), amounts.text(price.confidence)
    return amounts.text(price.usd), price.source, observed, sure, price.detail, json.dumps(others), calls


def _income(books: Books, result: Accounting, shown: AssetTable) -> Iterator[Row]:
    zone = books.method.zone
    rows = income_rows(
        result.gains,
        {**shown.facts},
        books.types,
        lambda time_us: datetime.fromtimestamp(time_us // 1_000_000, UTC).astimezone(zone).date(),
    )
    for each in rows:
        yield [getattr(each, name) for name in each.__struct_fields__]
