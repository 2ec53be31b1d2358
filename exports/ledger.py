"""A plain-text ledger: what came and left at its price, fees, and the holdings of now as assertions.

The syntax of a program is a `Syntax`: `beancount.py` and `hledger.py` have one each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from msgspec import UNSET

from chainfolio import amounts
from chainfolio.exports.commodities import AssetKey, commodity_names
from chainfolio.exports.dataset import Writer
from chainfolio.exports.gone_assets import GoneAssets
from chainfolio.portfolio.document import UNKNOWN, WALLET, Portfolio, every_asset, rounded
from chainfolio.portfolio.transactions import UNKNOWN_PROTOCOL
from chainfolio.printable import clean

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Page, Summary
    from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionDocument

GAINS, RECEIVED = "Income:Gains", "Income:Received"
SENT, FEES, UNEXPLAINED = "Expenses:Sent", "Expenses:Fees", "Equity:Unexplained"
STAKED: Final = "Assets:Staked"
NO_COST: Final = "the cost is not known and counts as 0"
USD_PLACES: Final = 12
MAX_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class Movement:
    """A change of one asset in one transaction: `price` is in USD for one unit, None if it is not known."""

    account: str
    asset: AssetKey
    quantity: Decimal
    price: Decimal | None


@dataclass(slots=True)
class _Books:
    """Units by account and asset, and the accounts that were used."""

    units: defaultdict[tuple[str, AssetKey], Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    symbols: dict[AssetKey, str] = field(default_factory=dict)

    def add(self, account: str, asset: AssetKey, quantity: Decimal) -> None:
        """Add units to an account."""
        self.units[account, asset] = amounts.EXACT.add(self.units[account, asset], quantity)


class Syntax(Protocol):
    """The syntax of an accounting program. Texts may be by anybody: each is cleaned and quoted here."""

    def header(self, summary: Summary) -> Iterator[str]:
        """Yield the options of the file, then comments: completeness, facts, issues and digest."""

    def account(self, first: date, account: str) -> str:
        """Return the line that declares an account from its first day on."""

    def commodity(self, first: date, name: str, facts: Mapping[str, str]) -> Iterator[str]:
        """Yield the lines that declare a commodity with the symbol, chain and contract of its asset."""

    def entry(self, day: date, narration: str, facts: Mapping[str, str], *, is_known: bool) -> Iterator[str]:
        """Yield the head of a transaction, flagged if not all of it is known."""

    def posting(self, account: str, quantity: Decimal, name: str, price: Decimal | None) -> str:
        """Return a posting of units that came or left at a price in USD; None: at an unknown one."""

    def money(self, account: str, usd: Decimal) -> str:
        """Return a posting of USD."""

    def assertion(self, day: date, account: str, held: Decimal, name: str) -> Iterator[str]:
        """Yield the lines that assert the units in an account at the beginning of a day."""


class LedgerWriter(Writer):
    """Writes the whole ledger at the end.

    Its first transaction is the oldest, and pages begin with the newest.
    """

    def __init__(self, file: TextIO, portfolios: Sequence[Portfolio], syntax: Syntax) -> None:
        """Prepare a ledger.

        Args:
            file: Gets the whole text at the end.
            portfolios: What is held now; the ledger ends with it. Empty: nothing is asserted.
            syntax: That of the program that reads it.
        """
        self._file = file
        self._portfolios = portfolios
        self._syntax = syntax
        self._transactions: list[TransactionDocument] = []

    def write(self, page: Page) -> None:
        """Keep the transactions of a page."""
        self._transactions += page.transactions

    def close(self, summary: Summary) -> None:
        """Write the whole ledger."""
        owners = frozenset(summary.addresses)
        ledger = _Ledger(self._transactions[::-1], self._portfolios, owners, self._syntax)
        for line in (*self._syntax.header(summary), *ledger.lines()):
            self._file.write(f"{line}\n")


def remarks(summary: Summary) -> Iterator[str]:
    """Yield what the comments at the beginning of a file say: completeness, facts, issues and digest."""
    yield f"completeness: {summary.completeness}"
    for name, text in summary.facts.items():
        yield f"{name}: {clean(text, MAX_TEXT)}"
    for issue in summary.issues:
        yield f"issue: {clean(issue, MAX_TEXT)}"
    yield f"SHA-256 of the data: {summary.digest}"


class _Ledger:
    """The directives of transactions, the oldest first."""

    def __init__(
        self,
        transactions: Sequence[TransactionDocument],
        portfolios: Sequence[Portfolio],
        owners: frozenset[str],
        syntax: Syntax,
    ) -> None:
        """Prepare the directives.

        Args:
            transactions: The oldest first.
            portfolios: What is held now, empty if it is not known.
            owners: Addresses of the owner; movements between two of them change nothing.
            syntax: That of the program that reads the ledger.
        """
        self._syntax = syntax
        self._transactions = transactions
        self._owners = owners
        self._books = _Books()
        self._held = _held(portfolios, self._books)
        self._gone = GoneAssets(portfolios) if portfolios else None
        for each in transactions:
            for asset in (*each.assets_in, *each.assets_out, each.native_asset_fees):
                self._books.symbols.setdefault(_key(asset), asset.symbol)
        self._names = commodity_names(self._books.symbols)

    def lines(self) -> Iterator[str]:
        """Yield the ledger: transactions, then what does not close, then balances. Accounts stand before them."""
        body: list[str] = []
        for each in self._transactions:
            body += self._transaction(each)
        last = _day(self._transactions[-1]) if self._transactions else date(1970, 1, 1)
        body += self._closing(last)
        first = _day(self._transactions[0]) if self._transactions else last
        yield from self._opening(first)
        yield from body

    def _opening(self, first: date) -> Iterator[str]:
        """Yield the opened accounts that the ledger uses, and the names of its commodities.

        Five fixed accounts are opened also if they are not used.
        """
        accounts = {account for account, _ in self._books.units} | {GAINS, RECEIVED, SENT, FEES, UNEXPLAINED}
        for account in sorted(accounts):
            yield self._syntax.account(first, account)
        for key, name in sorted(self._names.items()):
            facts = {"name": self._books.symbols[key], "chain": key.chain, "contract": key.contract}
            yield from self._syntax.commodity(first, name, facts | ({"number": key.number} if key.number else {}))

    def _transaction(self, each: TransactionDocument) -> Iterator[str]:
        """Yield the movements of a transaction, then its fee as another transaction.

        Movements of one asset are netted, as lots that come and go in one transaction have no order.
        """
        protocol = "" if each.protocol == UNKNOWN_PROTOCOL else f" {each.protocol.name}"
        narration = f"{each.type.lower()}{protocol}"
        yield from self._entry(each, narration, self._net_movements(each), FEES if each.type == "FAILED" else SENT)
        fee = Decimal(each.fees) if each.fees != UNKNOWN else Decimal()
        if each.sender == each.user.address and fee:
            key = _key(each.native_asset_fees)
            price = None if each.fees_fiat == UNKNOWN else rounded(Fraction(each.fees_fiat) / Fraction(fee), USD_PLACES)
            paid = Movement(_account(each.chain.key), key, amounts.EXACT.minus(fee), price)
            yield from self._entry(each, "fee", [paid], FEES)

    def _net_movements(self, each: TransactionDocument) -> list[Movement]:
        """Return the net movement of each ledger account and asset of a transaction, without those of zero.

        All wallets share one account of a chain. Assets that stay staked are in `STAKED`. Received amounts are
        positive. Unknown amounts, movements between own wallets and the fee are left out.
        """
        quantities: defaultdict[tuple[str, AssetKey], Decimal] = defaultdict(Decimal)
        prices: dict[AssetKey, Decimal | None] = {}
        for asset in (*each.assets_in, *each.assets_out):
            if asset.balance == UNKNOWN or (asset.sender in self._owners and asset.recipient in self._owners):
                continue  # of own wallets together nothing changes
            key, account = _key(asset), _account(each.chain.key)
            account = STAKED if asset.stays_staked is True else account
            sign = 1 if asset.is_asset_in else -1
            change = amounts.EXACT.multiply(Decimal(asset.balance), Decimal(sign))
            quantities[account, key] = amounts.EXACT.add(quantities[account, key], change)
            prices[key] = None if asset.price == UNKNOWN else Decimal(asset.price)
        return [
            Movement(account, key, quantity, prices[key]) for (account, key), quantity in quantities.items() if quantity
        ]

    def _entry(
        self, each: TransactionDocument, narration: str, movements: Sequence[Movement], spent: str
    ) -> Iterator[str]:
        """Yield one transaction, before it one for units that no earlier transaction brought."""
        if not movements:
            return
        for move in movements:
            missing = amounts.EXACT.minus(amounts.EXACT.add(self._books.units[move.account, move.asset], move.quantity))
            if missing > 0:
                yield from self._unexplained(_day(each), move.account, move.asset, missing)
        is_known = all(move.price is not None for move in movements)
        facts = {"hash": each.hash} | ({} if is_known else {"note": NO_COST})
        yield from self._syntax.entry(_day(each), narration, facts, is_known=is_known)
        for move in movements:
            self._books.add(move.account, move.asset, move.quantity)
            yield self._syntax.posting(move.account, move.quantity, self._names[move.asset], move.price)
        directions = {move.quantity > 0 for move in movements}
        if len(directions) == 1 and is_known:
            worth = amounts.EXACT.minus(amounts.total([_worth(move) for move in movements]))
            yield self._syntax.money(RECEIVED if directions == {True} else spent, worth)
        yield f"  {GAINS}"
        yield ""

    def _unexplained(self, day: date, account: str, asset: AssetKey, quantity: Decimal) -> Iterator[str]:
        """Yield a transaction for units that the transactions do not explain: received, or gone if negative."""
        self._books.add(account, asset, quantity)
        yield from self._syntax.entry(day, "not explained by the transactions of this file", {}, is_known=False)
        yield self._syntax.posting(account, quantity, self._names[asset], None)
        yield f"  {UNEXPLAINED}"
        yield ""

    def _closing(self, last: date) -> Iterator[str]:
        """Yield what makes the ledger equal to what wallets hold now, then the assertions that it is equal.

        Units of an asset that is gone are flagged. A comment names units that wallets may still hold, but do not show.
        Without portfolios nothing is yielded.
        """
        for (account, asset), units in sorted(self._books.units.items()):
            if not units or account == STAKED or (account, asset) in self._held or self._gone is None:
                continue
            if doubt := self._gone.doubt(asset):
                yield f"; {account} {amounts.text(units)} {self._names[asset]}: {doubt}"
            else:
                self._held[account, asset] = Decimal()
        for (account, asset), held in sorted(self._held.items()):
            difference = amounts.EXACT.subtract(held, self._books.units[account, asset])
            if difference:
                yield from self._unexplained(last, account, asset, difference)
        for (account, asset), held in sorted(self._held.items()):
            yield from self._syntax.assertion(last + timedelta(days=1), account, held, self._names[asset])


def _held(portfolios: Sequence[Portfolio], books: _Books) -> dict[tuple[str, AssetKey], Decimal]:
    """Return the wallets' balances by account and asset, without assets whose decimals are unknown.

    Collectibles are included, positions in protocols are not. Symbols new to `books` are added there.
    """
    held: defaultdict[tuple[str, AssetKey], Decimal] = defaultdict(Decimal)
    for portfolio in portfolios:
        for chain in portfolio.asset_by_protocols[WALLET].chains.values():
            for asset in every_asset(chain):
                if asset.balance != UNKNOWN:
                    key = AssetKey(chain.key, asset.contract)
                    books.symbols.setdefault(key, asset.symbol)
                    account = _account(chain.key)
                    held[account, key] = amounts.EXACT.add(held[account, key], Decimal(asset.balance))
        collections = {} if portfolio.nfts_by_collection is UNSET else portfolio.nfts_by_collection
        for collection in collections.values():
            for item in collection.items:
                if item.token_id == collection.contract_address:
                    continue  # a token of the wallet, which is counted above
                key = AssetKey(collection.chain_key, collection.contract_address, item.token_id)
                books.symbols.setdefault(key, collection.symbol)
                account = _account(collection.chain_key)
                held[account, key] = amounts.EXACT.add(held[account, key], Decimal(item.balance))
    return dict(held)


def _key(asset: TransactionAssetDocument) -> AssetKey:
    return AssetKey(asset.chain_key, asset.contract, "" if asset.nft is UNSET else asset.nft.token_id)


def _account(chain: str) -> str:
    """Return the account of a chain, which all wallets of the owner share."""
    name = "".join(char for char in chain if char.isascii() and (char.isalnum() or char == "-"))
    return f"Assets:{name[:1].upper()}{name[1:]}" if name[:1].isalnum() else f"Assets:X{name}"


def _worth(move: Movement) -> Decimal:
    return rounded(Fraction(move.quantity) * Fraction(move.price or 0), USD_PLACES)


def _day(transaction: TransactionDocument) -> date:
    return datetime.fromtimestamp(int(transaction.timestamp), UTC).date()
