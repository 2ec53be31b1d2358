"""What a currency is worth in USD, for a net asset value: as the operator fixed it, as the wallets hold it, as a chain
prices its native coin."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from chainfolio import amounts
from chainfolio.contracts import CRYPTO, Quoted
from chainfolio.errors import Unserved
from chainfolio.settings import Settings
from portfolio.document import rounded
from portfolio.nav import PLACES
from portfolio.valuation import Valuation

if TYPE_CHECKING:
    from chainfolio.chains import Chain

Quote = Callable[["Chain"], Awaitable[Quoted]]


async def rate(
    settings: Settings, valuation: Valuation, currency: str, chains: Sequence[Chain], quote: Quote
) -> Decimal:
    """Fiat: units of it per USD; crypto: USD per unit, the average over what the wallets hold, weighted by amount.
    Unserved where nobody knows it."""
    if currency in settings.rates:
        return amounts.parse(settings.rates[currency])
    if currency in CRYPTO:
        found = average(valuation, currency) or await _native(currency, chains, quote)
        if found is not None:
            return found
    each = "USD per unit" if currency in CRYPTO else "units of it per USD"
    raise Unserved(
        f"a net asset value in {currency}", remedy=f'the operator sets {currency} = "…" under [rates], {each}'
    )


def average(valuation: Valuation, symbol: str) -> Decimal | None:
    """The price of a coin over all that is held of it, weighted by amount, to 18 places; None where none is priced."""
    held = [
        (Fraction(valued.amount), Fraction(valued.price.usd))
        for valued in valuation.holdings
        if valued.holding.token.symbol == symbol
        and valued.price
        and valued.amount
        and valued.value_usd is not None
        and valued.counted
    ]
    whole = sum((amount for amount, _ in held), Fraction(0))
    return rounded(sum((a * usd for a, usd in held), Fraction(0)) / whole, PLACES) if whole else None


async def _native(symbol: str, chains: Sequence[Chain], quote: Quote) -> Decimal | None:
    """The price of a native coin, from the first chain (by key) that has one; a chain that does not answer is passed
    over, unless none does."""
    having = [chain for chain in chains if chain.info.native.symbol == symbol]
    quoted = await asyncio.gather(*(quote(chain) for chain in having), return_exceptions=True)
    for chain, found in zip(having, quoted, strict=True):
        if isinstance(found, Quoted) and (price := found.prices.get(chain.info.native.asset)):
            return price.usd
    for failed in quoted:
        if isinstance(failed, BaseException):
            raise failed
    return None
