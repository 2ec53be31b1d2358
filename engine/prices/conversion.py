"""Values in USD of many moments in another currency, each at the rate of its own moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.block_search import blocks_before, first_served
from chainfolio.chains import Chain
from chainfolio.contracts import FIAT
from chainfolio.currencies import checked, is_coin
from chainfolio.engine.wiring import rates_of
from chainfolio.errors import NotSupported
from chainfolio.portfolio.document import rounded
from chainfolio.portfolio.nav import PLACES
from chainfolio.pricing.ecb import FiatRate

if TYPE_CHECKING:
    from chainfolio.engine.prices.rates import Rates
    from chainfolio.engine.service import Engine

USD: Final = "USD"


@dataclass(frozen=True, slots=True)
class Conversion:
    """The rates of a currency: fiat as units of it per USD, a coin as USD per unit. Without rates it is the dollar."""

    currency: str = USD
    rates: Mapping[int, Decimal] | None = None
    remarks: Sequence[str] = ()

    @classmethod
    async def of(cls, engine: Engine, currency: str, moments_us: Sequence[int]) -> Conversion:
        """The rates at some moments. BadRequest for what is no currency, NotSupported where one rate is not known."""
        if checked(currency, engine.system.settings.rates) == USD:
            return cls()
        rates = rates_of(engine.system, lambda chain, assets: engine.history.snapshotter(chain).current_prices(assets))
        moments = sorted(set(moments_us))
        if currency in rates.fixed:
            fixed = amounts.parse(rates.fixed[currency])
            return cls(currency, dict.fromkeys(moments, fixed), [f"{currency} at the fixed rate of the settings"])
        if currency in FIAT:
            return cls(currency, {moment: await _fiat(rates, currency, moment) for moment in moments})
        return cls(currency, await _coin(engine, rates, currency, moments))

    def value(self, usd: Decimal, moment_us: int) -> Decimal:
        """A value of a moment: exact in fiat, to 18 places in a coin, which is divided by."""
        if self.rates is None:
            return usd
        rate = self.rates[moment_us]
        if is_coin(self.currency):
            return rounded(Fraction(usd) / Fraction(rate), PLACES)
        return amounts.value_of(usd, rate)


async def _fiat(rates: Rates, currency: str, moment_us: int) -> Decimal:
    said = await rates.fiat(currency, moment_us)
    if isinstance(said, FiatRate):
        return said.per_usd
    why = f"No rate of {currency} is known: {said}"
    raise NotSupported(f"a value in {currency}", why, remedy="[ecb] in the file of prices, or --currency USD")


async def _coin(engine: Engine, rates: Rates, currency: str, moments: Sequence[int]) -> dict[int, Decimal]:
    """The prices of a coin at the last block up to each moment, from the first chain that has all of them."""
    for chain, asset in _priced_on(rates, currency):
        head = (await chain.heads()).latest
        if moments and moments[-1] >= head.time_us + 1_000_000:
            continue
        blocks = await blocks_before(
            head,
            [min(moment + 1, head.time_us) for moment in moments],
            chain.blocks,
            await first_served(chain),
            chain.key,
        )
        at = {moment: blocks[min(moment + 1, head.time_us)] for moment in moments}
        wanted = {block: [asset] for block in at.values() if block is not None}
        prices, _ = await engine.history.snapshotter(chain).past.prices(wanted)
        found = {
            moment: prices[block.height][asset].usd
            for moment, block in at.items()
            if block is not None and asset in prices[block.height]
        }
        if len(found) == len(moments):
            return found
    why = f"No configured chain or source has every price of {currency} in that time"
    remedy = "a chain or a source that prices it, or --currency USD"
    raise NotSupported(f"values of the past in {currency}", why, remedy=remedy)


def _priced_on(rates: Rates, currency: str) -> list[tuple[Chain, Asset]]:
    """Where a coin may have a price: the chains whose native coin it is before those that have a token of it."""
    natives = [(chain, chain.info.native.asset) for chain in rates.chains if chain.info.native.symbol == currency]
    tokens = [(chain, unit) for chain in rates.chains for unit in rates.units.get(currency, ())]
    return [*sorted(natives, key=_by_key), *sorted(tokens, key=_by_key)]


def _by_key(pair: tuple[Chain, Asset]) -> str:
    return pair[0].key
