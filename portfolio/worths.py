"""Net worths of many accounts. Loose holdings are valued in columns, not row by row.

Exceptions are holdings whose thin market has to pay for several holdings at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.contracts import Holding, Issue, Price, Snapshot, Token
from chainfolio.portfolio.columns import AssetQuote, values_by_account
from chainfolio.portfolio.valuation import (
    Valuation,
    capped_assets,
    max_value,
    prices_of,
    replaced_assets,
    usable_price,
    valuate,
)

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class NetWorth:
    """A net worth in USD, without `unpriced_assets` and the failed reads (`unread`)."""

    value_usd: Decimal
    unpriced_assets: int
    unread: tuple[Issue, ...]


def net_worth(valuation: Valuation) -> NetWorth:
    """Return the net worth of a valuation."""
    unpriced = sum(valued.value_usd is None for valued in valuation.all_holdings)
    unread = tuple(issue for issues in valuation.unread.values() for issue in issues if issue.makes_partial)
    return NetWorth(valuation.value_usd, unpriced, unread)


def net_worths(snapshots: Sequence[Snapshot]) -> dict[str, NetWorth]:
    """Return the net worth of each account, equal to `net_worth` of its part of the valuation."""
    divided = [_split(each) for each in snapshots]
    by_account = valuate([by_row for by_row, _ in divided]).by_account()
    loose = [_loose(each) for _, each in divided if each.holdings]
    result = {}
    for account, valuation in by_account.items():
        base = net_worth(valuation)
        values = [values[account] for values, _ in loose if account in values]
        unpriced = sum(counts[account] for _, counts in loose)
        result[account] = NetWorth(
            amounts.total([base.value_usd, *values]), base.unpriced_assets + unpriced, base.unread
        )
    return result


def _split(snapshot: Snapshot) -> tuple[Snapshot, Snapshot]:
    """Split a snapshot into a part to value row by row and a part to value in columns.

    The first has holdings of assets whose market may have to pay the account for several holdings, the second the
    others. Both have the positions, to value them with the first only. Neither has fees or flows of the day.
    """
    capped = capped_assets(prices_of(snapshot))
    row_holdings: list[Holding] = []
    if capped:
        with_positions = {each.account for each in snapshot.positions}
        counts = Counter((each.account, each.token.asset) for each in snapshot.holdings if each.token.asset in capped)
        shared = {pair for pair, count in counts.items() if count > 1 or pair[0] in with_positions}
        row_holdings = (
            [each for each in snapshot.holdings if (each.account, each.token.asset) in shared] if shared else []
        )
    row_ids = {id(each) for each in row_holdings}
    column_holdings = (
        [each for each in snapshot.holdings if id(each) not in row_ids] if row_holdings else snapshot.holdings
    )
    plain = replace(snapshot, fees=(), day_flows=())
    return replace(plain, holdings=tuple(row_holdings)), replace(plain, holdings=tuple(column_holdings))


def _loose(snapshot: Snapshot) -> tuple[Mapping[str, Decimal], Counter[str]]:
    """Return the value of loose holdings by account, and the number that cannot be valued."""
    columns = _Columns(prices_of(snapshot))
    replaced, spam = replaced_assets(snapshot), snapshot.spam
    for holding in snapshot.holdings:
        account, token, raw = holding.account, holding.token, holding.raw
        if not raw or (replaced and (account, token.asset) in replaced):
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
    quotes: dict[int, AssetQuote] = field(default_factory=dict)
    _asset_numbers: dict[int, int | None] = field(
        default_factory=dict
    )  # by the identity of a token, for they are shared
    _numbers: defaultdict[str, int] = field(init=False)
    _accounts: list[int] = field(default_factory=list)
    _assets: list[int] = field(default_factory=list)
    _raws: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = defaultdict(lambda: len(self._numbers))

    def asset(self, token: Token) -> int | None:
        """Return the number of a token, None if it cannot be valued; it is cached."""
        if id(token) not in self._asset_numbers:
            self._asset_numbers[id(token)] = self._quoted(token)
        return self._asset_numbers[id(token)]

    def _quoted(self, token: Token) -> int | None:
        """Add a token's price, and return its number; None without a usable price or decimals."""
        price, decimals = usable_price(self.prices.get(token.asset)), token.decimals
        if price is None or decimals is None or not 0 <= decimals <= amounts.MAX_DECIMALS:
            return None
        self.quotes[len(self.quotes)] = AssetQuote(decimals, price.usd, max_value(price))
        return len(self.quotes) - 1

    def add(self, account: str, asset: int, raw: int) -> None:
        """Add one holding."""
        self._accounts.append(self._numbers[account])
        self._assets.append(asset)
        self._raws.append(raw.to_bytes(32, "big"))

    def values(self) -> dict[str, Decimal]:
        """Return the value of the holdings of each account."""
        names = list(self._numbers)
        by_number = values_by_account(self._frame(), self.quotes)
        return {names[account]: value for account, value in by_number.items()}

    def _frame(self) -> pl.DataFrame:
        """Return the holdings added so far: columns `account`, `asset` and `raw`."""
        import polars as pl

        content = {"account": self._accounts, "asset": self._assets, "raw": self._raws}
        return pl.DataFrame(content, {"account": pl.Int32, "asset": pl.Int32, "raw": pl.Binary})
