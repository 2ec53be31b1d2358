"""Net asset value in a currency, with the number of unpriced assets and failed reads.

Its amounts are the only ones written as JSON numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio import amounts
from chainfolio.currencies import is_coin
from chainfolio.portfolio.compose import issue_documents
from chainfolio.portfolio.document import IssueDocument, rounded
from chainfolio.portfolio.frames import frame
from chainfolio.portfolio.valuation import Valuation
from chainfolio.portfolio.worths import NetWorth, net_worth

if TYPE_CHECKING:
    import polars as pl

COLUMNS: Final = ("nav", "currency", "conversionPrice", "conversionSource", "unpricedAssets", "completeness")
PLACES: Final = 18


@dataclass(frozen=True, slots=True)
class Nav:
    """A net asset value, without `unpriced_assets`.

    `conversion_price` is the rate from USD for fiat money, and the coin's price in USD for crypto; `conversion_source`
    names its source. `completeness` is `partial` if a read failed, and `issues` name the chain or part that failed.
    """

    nav: Decimal
    currency: str
    conversion_price: Decimal
    unpriced_assets: int = 0
    completeness: str = "complete"
    conversion_source: str = ""
    issues: tuple[IssueDocument, ...] = ()

    def to_polars(self) -> pl.DataFrame:
        """Return a frame of one row, in the format of `chainfolio.portfolio.frames`."""
        row = [
            amounts.text(self.nav),
            self.currency,
            amounts.text(self.conversion_price),
            self.conversion_source,
            self.unpriced_assets,
            self.completeness,
        ]
        return frame(COLUMNS, [row], numbers=("nav", "conversionPrice"), counts=("unpricedAssets",))


class _Wire(msgspec.Struct, rename="camel", frozen=True):
    nav: msgspec.Raw
    currency: str
    conversion_price: msgspec.Raw
    unpriced_assets: int
    completeness: str
    issues: tuple[IssueDocument, ...]
    conversion_source: str | msgspec.UnsetType = msgspec.UNSET


def nav(valuation: Valuation, currency: str = "USD", rate: Decimal | None = None, source: str = "") -> Nav:
    """Return the net worth of a valuation in a currency, as `converted` does."""
    return converted(net_worth(valuation), currency, rate, source)


def converted(value: NetWorth, currency: str = "USD", rate: Decimal | None = None, source: str = "") -> Nav:
    """Return a net worth in a currency: fiat exactly by rate, crypto divided by price to 18 places.

    `rate` is required for all currencies but USD, and is above zero.
    """
    assert rate is not None or currency == "USD", f"no rate of {currency}"
    price = Decimal(1) if rate is None or currency == "USD" else rate
    assert price > 0, f"not a rate: {price}"
    usd = value.value_usd
    nav = rounded(Fraction(usd) / Fraction(price), PLACES) if is_coin(currency) else amounts.value_of(usd, price)
    completeness = "partial" if value.unread else "complete"
    return Nav(nav, currency, price, value.unpriced_assets, completeness, source, issue_documents(value.unread))


def encode(nav: Nav) -> bytes:
    """Return the JSON body. Numbers are written digit by digit, and never pass through a float."""
    numbers = _number(nav.nav), nav.currency, _number(nav.conversion_price)
    return msgspec.json.encode(
        _Wire(*numbers, nav.unpriced_assets, nav.completeness, nav.issues, nav.conversion_source or msgspec.UNSET)
    )


def _number(value: Decimal) -> msgspec.Raw:
    return msgspec.Raw(amounts.text(value).encode())
