"""Rates of currencies for the answers of one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from chainfolio.engine.prices.rates import Rates
from chainfolio.engine.prices.shown_rates import ShownRates
from chainfolio.engine.wiring import rates_of
from chainfolio.indexer.wiring import System
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.finished import finish

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.snapshots.snapshotter import Snapshotter

CHAIN_SHARE = 0.75  # of a request's time
REFRESH = "refresh"  # the name of background reads in logs and metrics


@dataclass(slots=True)
class RequestRates:
    """Reads rates when an answer needs them first.

    Attributes:
        snapshotter_of: Returns the snapshotter of a chain.
        on_failure: Is called with errors of background reads.
    """

    system: System
    snapshotter_of: Callable[[Chain], Snapshotter]
    on_failure: Callable[[BaseException], None]
    _rates: Rates | None = None
    _shown_rates: ShownRates | None = None

    @property
    def conversions(self) -> Rates:
        """The rates by which values are converted."""
        if self._rates is None:
            self._rates = rates_of(self.system, lambda chain, assets: self.snapshotter_of(chain).current_prices(assets))
        return self._rates

    @property
    def shown(self) -> ShownRates:
        """The rates that portfolios show."""
        if self._shown_rates is None:
            keep_s = self.system.settings.server.cache_s
            self._shown_rates = ShownRates(self.conversions, self.system.environment.clock, keep_s, self.on_failure)
        return self._shown_rates

    async def current(self, options: Options) -> Mapping[str, Decimal] | None:
        """Return the rates of now; None if the options leave rates out."""
        return await self.shown.current() if options.rates else None

    async def at(self, options: Options, time_us: int) -> Mapping[str, Decimal] | None:
        """Return the rates of a time; None if the options leave rates out."""
        return await self.shown.at(time_us) if options.rates else None

    def finish(self, document: Portfolio, rates: Mapping[str, Decimal] | None) -> Portfolio:
        """Return a portfolio as it is returned to clients; without rates if `rates` is None."""
        return finish(document) if rates is None else self.shown.with_rates(document, rates)
