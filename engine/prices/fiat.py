"""Exchange rates from the European Central Bank, stored so that a day is requested once."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from chainfolio.environment import Environment
from chainfolio.errors import StoreError
from chainfolio.plans import Unknown
from chainfolio.pricing import ecb
from chainfolio.pricing.ecb import Days, FiatRate
from chainfolio.pricing.http_reads import Http
from chainfolio.pricing.vendors import VendorHost

if TYPE_CHECKING:
    from chainfolio.engine.prices.rate_store import RateStore

log = logging.getLogger("chainfolio.prices")
RETRY_S = 900.0  # between two requests for a day that has no rates yet
YEAR_DAYS = 366  # after a requested day, in the same request


@dataclass(slots=True)
class Fiat:
    """Rates of fiat currencies.

    Attributes:
        host: The bank's server; None if it must not be asked.
        store: Stores known rates; None if only this process keeps them.
    """

    environment: Environment
    http: Http
    host: VendorHost | None
    store: RateStore | None
    _rates: Days | None = None
    _requested_s: dict[date, float] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def at(self, currency: str, moment_us: int) -> FiatRate | str:
        """Return the rate at a time in microseconds, or the reason why there is none.

        Pegged currencies need no request. Others are requested if the day is not stored, with the days around it.

        Raises:
            StoreError: The stored rates cannot be read.
        """
        if currency in ecb.PEGS:
            return ecb.rate_of(currency, moment_us, {}) or f"{currency} had no peg then"
        if self.host is None:
            return "the European Central Bank is not asked: [ecb] is not in the file of prices"
        day, reason = ecb.last_day(moment_us), ""
        async with self._lock:
            rates = await self._load()
            if self._needs_request(day, rates):
                reason = await self._request(self.host, day, rates)
        return ecb.rate_of(currency, moment_us, rates) or reason or f"the European Central Bank has no rates of {day}"

    def _needs_request(self, day: date, rates: Days) -> bool:
        now_s = self.environment.clock.monotonic_s()
        return any(
            self._requested_s.get(each, now_s - RETRY_S) <= now_s - RETRY_S for each in ecb.missing_days(day, rates)
        )

    async def _request(self, host: VendorHost, day: date, rates: Days) -> str:
        """Request a day and the days around it and store the rates; return an error text, "" if it succeeded.

        Weekdays without rates are stored as such once they are final; until then they are not requested again for some
        time.
        """
        now_us = self.environment.clock.now_us()
        first = day - timedelta(days=ecb.MAX_CARRIED_DAYS)
        last = min(day + timedelta(days=YEAR_DAYS), max(day, ecb.last_day(now_us)))
        (body,) = await self.http.read([ecb.rates_request(host, first, last)])
        if isinstance(body, Unknown):
            return body.reason
        try:
            new_rates = ecb.parse_rates(body, first, last)
        except ValueError as error:
            return f"the European Central Bank gave what is no answer: {error!s:.200}"
        none = [each for each in ecb.weekdays(first, last) if each not in new_rates]
        self._requested_s |= dict.fromkeys(none, self.environment.clock.monotonic_s())
        await self._store(rates, new_rates | {each: {} for each in ecb.final_days(none, now_us)}, now_us)
        return ""

    async def _load(self) -> Days:
        """Return the known rates, loaded from the store at first use."""
        if self._rates is None:
            self._rates = {} if self.store is None else await asyncio.to_thread(self.store.load)
        return self._rates

    async def _store(self, rates: Days, new_rates: Days, now_us: int) -> None:
        """Add new rates to `rates` in place, and store them; for known days the first rates are kept.

        A StoreError is only logged.
        """
        new_rates = {day: rates.get(day, day_rates) for day, day_rates in new_rates.items()}
        requested_at = datetime.fromtimestamp(now_us // 1_000_000, UTC)
        try:
            rates |= await asyncio.to_thread(self.store.add, new_rates, requested_at) if self.store else new_rates
        except StoreError as error:  # this process uses the rates all the same
            log.warning("rates of currencies are not kept: %s", error.message)
            rates |= new_rates
