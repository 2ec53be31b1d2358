"""Rates of currencies to USD, for a net asset value.

A rate comes from the settings; for fiat from reference rates; for a coin from the wallets that hold it, or from any
configured chain that prices it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.contracts import CRYPTO, FIAT, Price
from chainfolio.errors import NotSupported, SourceError
from chainfolio.portfolio.document import rounded
from chainfolio.portfolio.nav import PLACES
from chainfolio.portfolio.valuation import Valuation
from chainfolio.pricing.ecb import FiatRate

if TYPE_CHECKING:
    from chainfolio.chains import Chain

PriceReader = Callable[["Chain", Sequence[Asset]], Awaitable[Mapping[Asset, Price]]]


@dataclass(frozen=True, slots=True)
class Rate:
    """Units per USD for fiat, USD per unit for coins, and the source."""

    value: Decimal
    source: str


@dataclass(frozen=True, slots=True)
class Rates:
    """The sources of rates.

    Attributes:
        fixed: Rates of the settings; they come first.
        fiat: Returns the reference rate of a currency at a time, or the reason why there is none.
        units: Tokens that count as a coin, by its symbol.
        chains: Chains that may price coins.
        read_prices: Returns the current prices of assets on a chain.
    """

    fixed: Mapping[str, str]
    fiat: Callable[[str, int], Awaitable[FiatRate | str]]
    units: Mapping[str, Sequence[Asset]]
    chains: Sequence[Chain]
    read_prices: PriceReader

    async def of(self, currency: str, valuation: Valuation, moment_us: int) -> Rate:
        """Return the rate of a currency at a time, for a valuation.

        Fiat money has the rate of that time. A coin has the average price of what the valuation holds, else its current
        price from a node: `moment_us` does not matter.

        Raises:
            NotSupported: No source knows the rate.
            SourceError: No chain with the coin answers.
        """
        if currency in self.fixed or currency in FIAT:
            return await self.of_money(currency, moment_us)
        average_usd = average(valuation, {asset for chain in self.chains for asset in self._assets_of(chain, currency)})
        if average_usd is not None:
            return Rate(average_usd, "the price of what is held")
        price = await self._coin(currency)
        if price is not None:
            return Rate(price.usd, f"{price.source} price of {price.asset}")
        reason = f"No configured chain or source has a price of {currency}"
        raise _unserved(currency, "USD per unit", reason, "a chain or a source that prices it")

    async def of_money(self, currency: str, moment_us: int) -> Rate:
        """Return the rate at a time of a fiat currency, or of one that the settings fix for all times.

        Raises:
            NotSupported: No rate of the currency is known.
        """
        if currency in self.fixed:
            return Rate(amounts.parse(self.fixed[currency]), "the operator's settings")
        fiat_rate = await self.fiat(currency, moment_us) if currency in FIAT else f"it is none of {', '.join(FIAT)}"
        if isinstance(fiat_rate, FiatRate):
            return Rate(fiat_rate.per_usd, fiat_rate.source)
        reason = f"No rate of {currency} is known: {fiat_rate}"
        raise _unserved(currency, "units of it per USD", reason, "[ecb] in the file of prices")

    def _assets_of(self, chain: Chain, symbol: str) -> list[Asset]:
        """Return the assets that count as a coin: the native coin of `chain`, and `units` of all chains.

        A symbol proves nothing, so other tokens do not count.
        """
        native = [chain.info.native.asset] if chain.info.native.symbol == symbol else []
        return [*native, *self.units.get(symbol, ())]

    @property
    def coins(self) -> dict[str, str]:
        """Return the coins by `chain:contract` of the assets that count as one, as portfolios show them."""
        return {
            f"{chain.key}:{asset.shown_contract}": symbol
            for chain in self.chains
            for symbol in CRYPTO
            for asset in self._assets_of(chain, symbol)
            if asset.chain == chain.info.native.asset.chain
        }

    async def _coin(self, symbol: str) -> Price | None:
        """Return the price of a coin, None if no chain has one.

        Without a price, the error of a chain is raised, but a SourceError only if no chain answered.
        """
        prices, failures, has_answer = await self._prices([symbol])
        for failed in () if prices else failures:
            if not isinstance(failed, SourceError) or not has_answer:
                raise failed
        return prices.get(symbol)

    async def prices(self, symbols: Sequence[str]) -> dict[str, Price]:
        """Return the current price of each coin by symbol.

        Coins without a price are absent; chains that do not answer are skipped without an error.
        """
        return (await self._prices(symbols))[0]

    async def _prices(self, symbols: Sequence[str]) -> tuple[dict[str, Price], list[BaseException], bool]:
        """Return prices by symbol (unpriced coins are absent), the failures, and True if any chain answered.

        A price comes from the first chain by key, chains with the coin as native coin first. Each chain is asked once.
        """
        assets_by_chain = {
            chain.key: [asset for name in symbols for asset in self._assets_of(chain, name)] for chain in self.chains
        }
        chains = [chain for chain in self.chains if assets_by_chain[chain.key]]
        results = await asyncio.gather(
            *(self.read_prices(chain, assets_by_chain[chain.key]) for chain in chains), return_exceptions=True
        )
        answers = [(chain, each) for chain, each in zip(chains, results, strict=True) if isinstance(each, Mapping)]
        prices: dict[str, Price] = {}
        for symbol in symbols:
            for chain, quoted in sorted(answers, key=lambda pair: (pair[0].info.native.symbol != symbol, pair[0].key)):
                prices_of_coin = [quoted[asset] for asset in self._assets_of(chain, symbol) if asset in quoted]
                if prices_of_coin and symbol not in prices:
                    prices[symbol] = prices_of_coin[0]
        return prices, [each for each in results if isinstance(each, BaseException)], bool(answers)


def _unserved(currency: str, each: str, reason: str, alternative: str) -> NotSupported:
    remedy = f'the operator sets {currency} = "…" under [rates], {each}, or configures {alternative}'
    return NotSupported(f"a net asset value in {currency}", reason, remedy=remedy)


def average(valuation: Valuation, coin: Collection[Asset]) -> Decimal | None:
    """Return the average price of a held coin, weighted by amount, to 18 places; None if none is priced.

    Holdings that do not count, such as spam, are left out. `coin` are the assets that count as the coin.
    """
    amounts_and_prices = [
        (Fraction(valued.amount), Fraction(valued.price.usd))
        for valued in valuation.holdings
        if valued.holding.token.asset in coin
        and valued.price
        and valued.amount
        and valued.value_usd is not None
        and valued.is_counted
    ]
    total = sum((amount for amount, _ in amounts_and_prices), Fraction(0))
    return rounded(sum((a * usd for a, usd in amounts_and_prices), Fraction(0)) / total, PLACES) if total else None
