"""Rates of currencies at moments, from the European Central Bank: what is known is kept, so that the bank is asked once
for a day, and an old date has the same rate again."""

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
AGAIN_S = 900.0  # between two requests for a day that has no rates yet
YEAR_DAYS = 366  # that are asked for together, where the past is


@dataclass(slots=True)
class Fiat:
    """Rates of currencies. `host` is where the bank is asked, None: it is not; `store` keeps what is known, None: only
    this process does."""

    environment: Environment
    http: Http
    host: VendorHost | None
    store: RateStore | None
    _known: Days | None = None
    _asked_s: dict[date, float] = field(default_factory=dict)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def at(self, currency: str, moment_us: int) -> FiatRate | str:
        """The rate that counts at a moment, or why there is none. StoreError where what is kept cannot be read."""
        if currency in ecb.PEGS:
            return ecb.rate_of(currency, moment_us, {}) or f"{currency} had no peg then"
        if self.host is None:
            return "the European Central Bank is not asked: [ecb] is not in the file of prices"
        day, why = ecb.last_day(moment_us), ""
        async with self._asking:
            known = await self._all()
            if self._has_to_ask(day, known):
                why = await self._ask(self.host, day, known)
        return ecb.rate_of(currency, moment_us, known) or why or f"the European Central Bank has no rates of {day}"

    def _has_to_ask(self, day: date, known: Days) -> bool:
        now_s = self.environment.clock.monotonic_s()
        return any(self._asked_s.get(each, now_s - AGAIN_S) <= now_s - AGAIN_S for each in ecb.missing_days(day, known))

    async def _ask(self, host: VendorHost, day: date, known: Days) -> str:
        """Ask for a day and those around it, and keep what is told; why nothing was."""
        now_us = self.environment.clock.now_us()
        first = day - timedelta(days=ecb.MAX_CARRIED_DAYS)
        last = min(day + timedelta(days=YEAR_DAYS), max(day, ecb.last_day(now_us)))
        (body,) = await self.http.read([ecb.rates_request(host, first, last)])
        if isinstance(body, Unknown):
            return body.reason
        try:
            told = ecb.parse_rates(body, first, last)
        except ValueError as error:
            return f"the European Central Bank gave what is no answer: {error!s:.200}"
        none = [each for each in ecb.weekdays(first, last) if each not in told]
        self._asked_s |= dict.fromkeys(none, self.environment.clock.monotonic_s())
        await self._keep(known, told | {each: {} for each in ecb.final_days(none, now_us)}, now_us)
        return ""

    async def _all(self) -> Days:
        """What is known."""
        if self._known is None:
            self._known = {} if self.store is None else await asyncio.to_thread(self.store.known)
        return self._known

    async def _keep(self, known: Days, told: Days, now_us: int) -> None:
        """Add to what is known; of a day that was told before, to this process or to another, those rates count."""
        told = {day: known.get(day, rates) for day, rates in told.items()}
        asked = datetime.fromtimestamp(now_us // 1_000_000, UTC)
        try:
            known |= await asyncio.to_thread(self.store.keep, told, asked) if self.store else told
        except StoreError as error:  # they are known all the same, until the process ends
            log.warning("rates of currencies are not kept: %s", error.message)
            known |= told
