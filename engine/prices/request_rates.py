"""Rates of currencies for the answers of one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from chainfolio.engine.prices.conversion import USD, Conversion
from chainfolio.engine.prices.rates import PriceReader, Rates
from chainfolio.engine.prices.shown_rates import ShownRates
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.finished import finish

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.snapshots.snapshotter import Snapshotter
    from chainfolio.environment import Clock


@dataclass(slots=True)
class RequestRates:
    """Reads rates when an answer needs them first.

    Attributes:
        build: Builds the rates from a reader of prices.
        snapshotter_of: Returns the snapshotter of a chain.
        keep_s: Age from which current rates are read again.
        on_failure: Is called with errors of background reads.
    """

    build: Callable[[PriceReader], Rates]
    snapshotter_of: Callable[[Chain], Snapshotter]
    clock: Clock
    keep_s: float
    on_failure: Callable[[BaseException], None]
    _rates: Rates | None = None
    _shown_rates: ShownRates | None = None

    @property
    def conversions(self) -> Rates:
        """The rates by which values are converted."""
        if self._rates is None:
            self._rates = self.build(lambda chain, assets: self.snapshotter_of(chain).current_prices(assets))
        return self._rates

    @property
    def shown(self) -> ShownRates:
        """The rates that portfolios show."""
        if self._shown_rates is None:
            self._shown_rates = ShownRates(self.conversions, self.clock, self.keep_s, self.on_failure)
        return self._shown_rates

    async def conversion(self, currency: str, moments_us: Sequence[int]) -> Conversion:
        """Return the conversion of USD into a currency at some times; errors as of `Conversion.of`."""
        if currency == USD:
            return Conversion()
        return await Conversion.of(self.conversions, self.snapshotter_of, currency, moments_us)

    async def current(self, options: Options) -> Mapping[str, Decimal] | None:
        """Return the rates of now; None if the options leave rates out."""
        return await self.shown.current() if options.rates else None

    async def at(self, options: Options, time_us: int) -> Mapping[str, Decimal] | None:
        """Return the rates of a time; None if the options leave rates out."""
        return await self.shown.at(time_us) if options.rates else None

    def finish(self, document: Portfolio, rates: Mapping[str, Decimal] | None) -> Portfolio:
        """Return a portfolio as it is returned to clients; without rates if `rates` is None."""
        return finish(document) if rates is None else self.shown.with_rates(document, rates)
