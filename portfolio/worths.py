"""What each of many accounts is worth, without a row for each of its holdings: loose ones are valued in columns, but
those of a thin market that pays for several at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.contracts import Holding, Issue, Price, Snapshot, Token
from portfolio.columns import Quote, values_by_account
from portfolio.valuation import Valuation, bound, prices_of, shown_of, thin_of, usable, value

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Worth:
    """A net worth in USD. It lacks the `unpriced_assets` and the reads that failed, of which `unread` tells."""

    value_usd: Decimal
    unpriced_assets: int
    unread: tuple[Issue, ...]


def worth(valuation: Valuation) -> Worth:
    """The worth of everything in a valuation."""
    unpriced = sum(valued.value_usd is None for valued in valuation.everything)
    unread = tuple(issue for issues in valuation.unread.values() for issue in issues if issue.makes_partial)
    return Worth(valuation.value_usd, unpriced, unread)


def worths(snapshots: Sequence[Snapshot]) -> dict[str, Worth]:
    """What each account of some snapshots is worth: exactly what `worth` says of its part of their valuation."""
    divided = [_divided(each) for each in snapshots]
    inside = value([by_row for by_row, _ in divided]).apart()
    loose = [_loose(each) for _, each in divided if each.holdings]
    found = {}
    for account, rest in inside.items():
        known = worth(rest)
        values = [values[account] for values, _ in loose if account in values]
        unpriced = sum(counts[account] for _, counts in loose)
        found[account] = Worth(
            amounts.total([known.value_usd, *values]), known.unpriced_assets + unpriced, known.unread
        )
    return found


def _divided(snapshot: Snapshot) -> tuple[Snapshot, Snapshot]:
    """The same in two parts, the first to be valued row by row: positions, and what is held of an asset whose market
    may have to pay the same account for more than that."""
    thin = thin_of(prices_of(snapshot))
    rows: list[Holding] = []
    if thin:
        inside = {each.account for each in snapshot.positions}
        held = Counter((each.account, each.token.asset) for each in snapshot.holdings if each.token.asset in thin)
        several = {pair for pair, count in held.items() if count > 1 or pair[0] in inside}
        rows = [each for each in snapshot.holdings if (each.account, each.token.asset) in several] if several else []
    apart = {id(each) for each in rows}
    columns = [each for each in snapshot.holdings if id(each) not in apart] if rows else snapshot.holdings
    plain = replace(snapshot, fees=(), days=())
    return replace(plain, holdings=tuple(rows)), replace(plain, holdings=tuple(columns))


def _loose(snapshot: Snapshot) -> tuple[Mapping[str, Decimal], Counter[str]]:
    """By account what its loose holdings are worth, and how many of them nobody can value."""
    columns = _Columns(prices_of(snapshot))
    shown, spam = shown_of(snapshot), snapshot.spam
    for holding in snapshot.holdings:
        account, token, raw = holding.account, holding.token, holding.raw
        if not raw or (shown and (account, token.asset) in shown):
            continue
        asset = columns.asset(token)
        if asset is None or not 0 < raw <= amounts.MAX_RAW:
            columns.unpriced[account] += 1
        elif not spam or spam.get((account, token.asset)) is None:
            columns.add(account, asset, raw)
    return columns.values(), columns.unpriced


@dataclass(slots=True)
class _Columns:
    """Holdings of accounts, with numbers in place of names."""

    prices: Mapping[Asset, Price]
    unpriced: Counter[str] = field(default_factory=Counter)
    quotes: dict[int, Quote] = field(default_factory=dict)
    _known: dict[int, int | None] = field(default_factory=dict)  # by the identity of a token, for they are shared
    _numbers: defaultdict[str, int] = field(init=False)
    _accounts: list[int] = field(default_factory=list)
    _assets: list[int] = field(default_factory=list)
    _raws: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = defaultdict(lambda: len(self._numbers))

    def asset(self, token: Token) -> int | None:
        """The number of a token that can be valued."""
        if id(token) not in self._known:
            self._known[id(token)] = self._quoted(token)
        return self._known[id(token)]

    def _quoted(self, token: Token) -> int | None:
        price, decimals = usable(self.prices.get(token.asset)), token.decimals
        if price is None or decimals is None or not 0 <= decimals <= amounts.MAX_DECIMALS:
            return None
        self.quotes[len(self.quotes)] = Quote(decimals, price.usd, bound(price))
        return len(self.quotes) - 1

    def add(self, account: str, asset: int, raw: int) -> None:
        """One holding more."""
        self._accounts.append(self._numbers[account])
        self._assets.append(asset)
        self._raws.append(raw.to_bytes(32, "big"))

    def values(self) -> dict[str, Decimal]:
        """What each account holds is worth."""
        names = list(self._numbers)
        found = values_by_account(self._frame(), self.quotes)
        return {names[account]: value for account, value in found.items()}

    def _frame(self) -> pl.DataFrame:
        import polars as pl

        content = {"account": self._accounts, "asset": self._assets, "raw": self._raws}
        return pl.DataFrame(content, {"account": pl.Int32, "asset": pl.Int32, "raw": pl.Binary})
