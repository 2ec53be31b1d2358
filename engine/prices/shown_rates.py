"""Rates that portfolios show (`conversionRates`): those of `/nav`, for all known currencies.

They are optional: a source that fails or hangs costs only its own currencies, and little time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeVar

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.contracts import CRYPTO, FIAT, Price
from chainfolio.engine.prices.rates import Rates
from chainfolio.engine.shared_work import SharedWork
from chainfolio.environment import Clock
from chainfolio.errors import ChainfolioError
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.finished import coin_rates, finish
from chainfolio.pricing.ecb import FiatRate

if TYPE_CHECKING:
    from chainfolio.chains import Chain

log = logging.getLogger("chainfolio.engine")
TIMEOUT_S: Final = 5.0  # for which an answer waits for rates
MAX_AGE_S: Final = 3600.0  # of rates that are still shown while newer ones are read
NOW: Final = "rates"
T = TypeVar("T")


@dataclass(slots=True)
class ShownRates:
    """Current rates, shared by all portfolios, and rates of past times.

    Attributes:
        keep_s: Age from which current rates are read again.
        on_failure: Is called with errors of background reads.
    """

    rates: Rates
    clock: Clock
    keep_s: float
    on_failure: Callable[[BaseException], None]
    _rates: Mapping[str, Decimal] = field(default_factory=dict)
    _read_s: float | None = None
    _work: SharedWork[None] = field(init=False)
    _bounded: Rates = field(init=False)

    def __post_init__(self) -> None:
        self._work = SharedWork(self.on_failure)
        self._bounded = replace(self.rates, read_prices=self._read_prices)

    async def current(self) -> Mapping[str, Decimal]:
        """Return current rates by currency: units per USD, or USD per unit for coins that no setting fixes.

        Rates up to an hour old are returned while newer ones are read in the background. Without such rates it waits
        for the read. Rates that cannot be read are absent; no error is raised.
        """
        age_s = MAX_AGE_S if self._read_s is None else self.clock.monotonic_s() - self._read_s
        if age_s >= MAX_AGE_S:
            await self._work.results([(NOW, self._read)])
        elif age_s > self.keep_s and NOW not in self._work:
            self._work.begin(NOW, self._read)
        return self._rates

    async def at(self, moment_us: int) -> dict[str, Decimal]:
        """Return the fiat rates at a time, and the rates of the settings, by currency as units per USD.

        Currencies whose rate is unknown or not answered soon are left out. Nothing is cached.
        """
        names = [name for name in FIAT[1:] if name not in self.rates.fixed]
        results = await asyncio.gather(*(_bounded_wait(self.rates.fiat(name, moment_us)) for name in names))
        fiat_rates = {
            name: rate.per_usd for name, rate in zip(names, results, strict=True) if isinstance(rate, FiatRate)
        }
        return fiat_rates | {name: amounts.parse(rate) for name, rate in self.rates.fixed.items()}

    def with_rates(self, document: Portfolio, rates: Mapping[str, Decimal]) -> Portfolio:
        """Return a portfolio with rates.

        The price of a coin that it holds replaces the rate of that coin, unless the settings fix the rate.
        """
        fixed = {name: rates[name] for name in self.rates.fixed}
        return finish(document, {**rates, **coin_rates(document, self.rates.coins), **fixed})

    async def _read(self) -> None:
        """Read current rates and cache them."""
        names = [name for name in CRYPTO if name not in self.rates.fixed]
        coins, other_rates = await asyncio.gather(self._bounded.prices(names), self.at(self.clock.now_us()))
        self._rates = {name: price.usd for name, price in coins.items()} | other_rates
        self._read_s = self.clock.monotonic_s()

    async def _read_prices(self, chain: Chain, assets: Sequence[Asset]) -> Mapping[Asset, Price]:
        return await _bounded_wait(self.rates.read_prices(chain, assets)) or {}


async def _bounded_wait(result: Awaitable[T]) -> T | None:
    """Wait for a result; None if it fails or takes longer than `TIMEOUT_S`."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await result
    except (ChainfolioError, TimeoutError) as error:
        log.warning("a rate could not be read: %s", error)
        return None
