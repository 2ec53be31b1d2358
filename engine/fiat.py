"""Rates of currencies at moments, from the European Central Bank: what is known is kept in a file, so that the bank is
asked once for a day, and an old date has the same rate again."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from chainfolio.plans import Unknown
from chainfolio.seams import Seams
from pricing import ecb
from pricing.ecb import Days, FiatRate
from pricing.http_reads import Http
from pricing.vendors import Host

log = logging.getLogger("chainfolio.prices")
AGAIN_S = 900.0  # between two requests for a day that has no rates yet
YEAR_DAYS = 366  # that are asked for together, where the past is


@dataclass(slots=True)
class Fiat:
    """Rates of currencies. `host` is where the bank is asked, None: it is not; `file` keeps what is known."""

    seams: Seams
    http: Http
    host: Host | None
    file: Path | None
    _known: Days | None = None
    _asked_s: dict[date, float] = field(default_factory=dict)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def at(self, currency: str, moment_us: int) -> FiatRate | str:
        """The rate that counts at a moment, or why there is none."""
        if currency in ecb.PEGS:
            return ecb.rate_of(currency, moment_us, {}) or f"{currency} had no peg then"
        if self.host is None:
            return "the European Central Bank is not asked: [ecb] is not in the file of prices"
        day, known = ecb.last_day(moment_us), self._load()
        why = ""
        async with self._asking:
            if self._has_to_ask(day, known):
                why = await self._ask(self.host, day, known)
        return ecb.rate_of(currency, moment_us, known) or why or f"the European Central Bank has no rates of {day}"

    def _has_to_ask(self, day: date, known: Days) -> bool:
        now_s = self.seams.clock.monotonic_s()
        return any(self._asked_s.get(each, now_s - AGAIN_S) <= now_s - AGAIN_S for each in ecb.unknown_days(day, known))

    async def _ask(self, host: Host, day: date, known: Days) -> str:
        """Ask for a day and those around it, and keep what is told; why nothing was."""
        now_us = self.seams.clock.now_us()
        first = day - timedelta(days=ecb.CARRIED_DAYS)
        last = min(day + timedelta(days=YEAR_DAYS), max(day, ecb.last_day(now_us)))
        (body,) = await self.http.answers([ecb.request(host, first, last)])
        if isinstance(body, Unknown):
            return body.reason
        try:
            told = ecb.read(body, first, last)
        except ValueError as error:
            return f"the European Central Bank gave what is no answer: {error!s:.200}"
        days = [first + timedelta(days=each) for each in range((last - first).days + 1)]
        none = [each for each in days if each not in told]
        fresh = told | {each: {} for each in ecb.settled(none, now_us)}
        known |= {each: rates for each, rates in fresh.items() if not known.get(each)}  # what was said first stays
        self._asked_s |= dict.fromkeys(none, self.seams.clock.monotonic_s())
        self._keep(known)
        return ""

    def _load(self) -> Days:
        """What is known; a file that cannot be read is as none, and the bank is asked again."""
        if self._known is None:
            self._known = self._read()
        return self._known

    def _read(self) -> Days:
        try:
            return ecb.kept(self.seams.files.read(self.file)) if self.file else {}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read, its rates are asked for again: %s", self.file, error)
            return {}

    def _keep(self, known: Days) -> None:
        """Add to the file what is known; of a day that another process was told of first, its rates count."""
        known |= {day: rates for day, rates in self._read().items() if rates}
        try:
            if self.file:
                self.seams.files.replace(self.file, ecb.written(known))
        except OSError as error:  # they are known all the same, until the process ends
            log.warning("%s cannot be written: %s", self.file, error)
