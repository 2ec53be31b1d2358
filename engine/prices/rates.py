"""What a currency is worth in USD, for a net asset value: as the operator fixed it; fiat by reference rates; a coin as
the wallets hold it, or as any configured chain prices it."""

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

Worth = Callable[["Chain", Sequence[Asset]], Awaitable[Mapping[Asset, Price]]]


@dataclass(frozen=True, slots=True)
class Rate:
    """Fiat: units of it per USD; crypto: USD per unit. `source` says where it is from."""

    value: Decimal
    source: str


@dataclass(frozen=True, slots=True)
class Rates:
    """Where rates come from, in this order: `fixed` by the operator; `fiat`, reference rates of a moment; coins as they
    are held; coins as `chains` price them now (`worth`), by their native coin or one of the coin's `units`."""

    fixed: Mapping[str, str]
    fiat: Callable[[str, int], Awaitable[FiatRate | str]]
    units: Mapping[str, Sequence[Asset]]
    chains: Sequence[Chain]
    worth: Worth

    async def of(self, currency: str, valuation: Valuation, moment_us: int) -> Rate:
        """The rate of a currency at a moment, for a valuation. Unserved where nobody knows it."""
        if currency in self.fixed:
            return Rate(amounts.parse(self.fixed[currency]), "the operator's settings")
        if currency in FIAT:
            said = await self.fiat(currency, moment_us)
            if isinstance(said, FiatRate):
                return Rate(said.per_usd, said.source)
            why = f"No rate of {currency} is known: {said}"
            raise _unserved(currency, "units of it per USD", why, "[ecb] in the file of prices")
        held = average(valuation, {asset for chain in self.chains for asset in self._named(chain, currency)})
        if held is not None:
            return Rate(held, "the price of what is held")
        price = await self._coin(currency)
        if price is not None:
            return Rate(price.usd, f"{price.source} price of {price.asset}")
        why = f"No configured chain or source has a price of {currency}"
        raise _unserved(currency, "USD per unit", why, "a chain or a source that prices it")

    def _named(self, chain: Chain, symbol: str) -> list[Asset]:
        """What a coin is to a chain: its native coin, and the `units` of the coin. A symbol proves nothing."""
        native = [chain.info.native.asset] if chain.info.native.symbol == symbol else []
        return [*native, *self.units.get(symbol, ())]

    @property
    def coins(self) -> dict[str, str]:
        """The coins by chain and contract of the assets that they are, as portfolios show these."""
        return {
            f"{chain.key}:{asset.shown_contract}": symbol
            for chain in self.chains
            for symbol in CRYPTO
            for asset in self._named(chain, symbol)
            if asset.chain == chain.info.native.asset.chain
        }

    async def _coin(self, symbol: str) -> Price | None:
        """The price of a coin; a chain that does not answer is passed over, unless none does."""
        prices, failures, is_told = await self._prices([symbol])
        for failed in () if prices else failures:
            if not isinstance(failed, SourceError) or not is_told:
                raise failed
        return prices.get(symbol)

    async def prices(self, symbols: Sequence[str]) -> dict[str, Price]:
        """The prices of some coins; chains that do not answer are passed over."""
        return (await self._prices(symbols))[0]

    async def _prices(self, symbols: Sequence[str]) -> tuple[dict[str, Price], list[BaseException], bool]:
        """The price of each coin from the first chain (by key) that has one, those whose native coin it is before
        others; what failed; and whether any chain answered. Each chain is asked once."""
        wanted = {chain.key: [asset for name in symbols for asset in self._named(chain, name)] for chain in self.chains}
        asked = [chain for chain in self.chains if wanted[chain.key]]
        told = await asyncio.gather(*(self.worth(chain, wanted[chain.key]) for chain in asked), return_exceptions=True)
        answers = [(chain, each) for chain, each in zip(asked, told, strict=True) if isinstance(each, Mapping)]
        prices: dict[str, Price] = {}
        for symbol in symbols:
            for chain, found in sorted(answers, key=lambda pair: (pair[0].info.native.symbol != symbol, pair[0].key)):
                known = [found[asset] for asset in self._named(chain, symbol) if asset in found]
                if known and symbol not in prices:
                    prices[symbol] = known[0]
        return prices, [each for each in told if isinstance(each, BaseException)], bool(answers)


def _unserved(currency: str, each: str, why: str, other: str) -> NotSupported:
    remedy = f'the operator sets {currency} = "…" under [rates], {each}, or configures {other}'
    return NotSupported(f"a net asset value in {currency}", why, remedy=remedy)


def average(valuation: Valuation, coin: Collection[Asset]) -> Decimal | None:
    """The price of a coin over all that is held of it, weighted by amount, to 18 places; None where none is priced.
    `coin` are the assets that it is."""
    held = [
        (Fraction(valued.amount), Fraction(valued.price.usd))
        for valued in valuation.holdings
        if valued.holding.token.asset in coin
        and valued.price
        and valued.amount
        and valued.value_usd is not None
        and valued.is_counted
    ]
    whole = sum((amount for amount, _ in held), Fraction(0))
    return rounded(sum((a * usd for a, usd in held), Fraction(0)) / whole, PLACES) if whole else None
