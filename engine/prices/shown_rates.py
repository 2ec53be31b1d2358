"""The rates that portfolios show (`conversionRates`): what `/nav` would convert by, of as many currencies as are known.

They are a courtesy beside a portfolio: a source that fails or hangs costs its own currencies, and little time.
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
WITHIN_S: Final = 5.0  # that an answer waits for rates
MAX_AGE_S: Final = 3600.0  # of rates that are shown while newer ones are read
NOW: Final = "rates"
T = TypeVar("T")


@dataclass(slots=True)
class ShownRates:
    """The rates of now, which all portfolios share and which are read again when they are older than `keep_s`, and
    those of past moments. `noted` is told of failures that nobody waits for."""

    rates: Rates
    clock: Clock
    keep_s: float
    noted: Callable[[BaseException], None]
    _known: Mapping[str, Decimal] = field(default_factory=dict)
    _read_s: float | None = None
    _work: SharedWork[None] = field(init=False)
    _bounded: Rates = field(init=False)

    def __post_init__(self) -> None:
        self._work = SharedWork(self.noted)
        self._bounded = replace(self.rates, worth=self._worth)

    async def now(self) -> Mapping[str, Decimal]:
        """The rates of now; those that are not too old are given while newer ones are read."""
        age_s = MAX_AGE_S if self._read_s is None else self.clock.monotonic_s() - self._read_s
        if age_s >= MAX_AGE_S:
            await self._work.results([(NOW, self._read)])
        elif age_s > self.keep_s and NOW not in self._work:
            self._work.begin(NOW, self._read)
        return self._known

    async def at(self, moment_us: int) -> dict[str, Decimal]:
        """The rates of fiat money at a moment, and those that the settings fix."""
        names = [name for name in FIAT[1:] if name not in self.rates.fixed]
        told = await asyncio.gather(*(_within(self.rates.fiat(name, moment_us)) for name in names))
        found = {name: rate.per_usd for name, rate in zip(names, told, strict=True) if isinstance(rate, FiatRate)}
        return found | {name: amounts.parse(rate) for name, rate in self.rates.fixed.items()}

    def finished(self, document: Portfolio, rates: Mapping[str, Decimal]) -> Portfolio:
        """A portfolio with rates. A coin that it holds has the price at which it is held, unless the settings fix it,
        as in a net asset value."""
        fixed = {name: rates[name] for name in self.rates.fixed}
        return finish(document, {**rates, **coin_rates(document, self.rates.coins), **fixed})

    async def _read(self) -> None:
        names = [name for name in CRYPTO if name not in self.rates.fixed]
        coins, others = await asyncio.gather(self._bounded.prices(names), self.at(self.clock.now_us()))
        self._known = {name: price.usd for name, price in coins.items()} | others
        self._read_s = self.clock.monotonic_s()

    async def _worth(self, chain: Chain, assets: Sequence[Asset]) -> Mapping[Asset, Price]:
        return await _within(self.rates.worth(chain, assets)) or {}


async def _within(told: Awaitable[T]) -> T | None:
    """What a source tells; None if it fails or takes longer than an answer waits."""
    try:
        async with asyncio.timeout(WITHIN_S):
            return await told
    except (ChainfolioError, TimeoutError) as error:
        log.warning("a rate could not be read: %s", error)
        return None
