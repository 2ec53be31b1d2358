"""Euro reference rates of the European Central Bank, by day: read exactly from its CSV, and turned into units per USD.

A day's rates count from 15:00 UTC on, when they are out in winter and in summer. Where there are none that day, the
last before it are carried forward, and the answer says of which day they are.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from chainfolio import amounts
from pricing.http_reads import HttpGet
from pricing.vendors import Host, base_url, checked, number

SOURCE: Final = "ecb"
URL: Final = "https://data-api.ecb.europa.eu"
BASE: Final = "EUR"
CURRENCIES: Final = ("USD", "CAD", "CHF", "SGD")  # per euro
PUBLISHED_S: Final = 15 * 3600  # after midnight UTC
CARRIED_DAYS: Final = 10  # at most: no holidays are as long
DAY_S: Final = 86_400
SATURDAY: Final = 5
PLACES: Final = 18
LEAST, MOST = Decimal("1E-6"), Decimal("1E6")
PEGS: Final = {"AED": (Decimal("3.6725"), date(1997, 11, 2))}  # per USD, since

Rates = dict[str, Decimal]  # units per euro, by currency
Days = dict[date, Rates]  # a day without rates has none: nothing was published


@dataclass(frozen=True, slots=True)
class FiatRate:
    """How many units of a currency a USD was, and why."""

    per_usd: Decimal
    source: str


def last_day(time_us: int) -> date:
    """The newest day whose rates are out at a moment, if that day had any."""
    return date(1970, 1, 1) + timedelta(days=(time_us // 1_000_000 - PUBLISHED_S) // DAY_S)


def carried(day: date) -> Iterator[date]:
    """A day and those before it whose rates may count for it, the newest first; no weekends."""
    return reversed(weekdays(day - timedelta(days=CARRIED_DAYS), day))


def weekdays(first: date, last: date) -> list[date]:
    """The days from one to another that are on no weekend."""
    days = (first + timedelta(days=each) for each in range((last - first).days + 1))
    return [each for each in days if each.weekday() < SATURDAY]


def unknown_days(day: date, known: Mapping[date, Rates]) -> list[date]:
    """The days that have to be known before the rates that count for a day are."""
    found = []
    for each in carried(day):
        if known.get(each):
            break
        if each not in known:
            found.append(each)
    return found


def rate_of(currency: str, moment_us: int, known: Mapping[date, Rates]) -> FiatRate | None:
    """The rate that counts at a moment; None where there is none."""
    asked = last_day(moment_us)
    if currency in PEGS:
        per_usd, since = PEGS[currency]
        return FiatRate(per_usd, f"peg of {amounts.text(per_usd)} per USD") if asked >= since else None
    for day in carried(asked):
        if rates := known.get(day):
            per_euro = Fraction(1) if currency == BASE else Fraction(rates[currency]) if currency in rates else None
            if per_euro is None or "USD" not in rates:
                return None
            scaled = round(per_euro / Fraction(rates["USD"]) * 10**PLACES)
            forward = f", carried forward to {asked}" if day < asked else ""
            source = f"European Central Bank, reference rate of {day}{forward}"
            return FiatRate(amounts.EXACT.scaleb(Decimal(scaled), -PLACES), source)
    return None


def host_of(section: Mapping[str, Any], where: str) -> Host:
    """Where the bank is asked; BadSettings where the section is wrong."""
    checked(section, where, ("base_url",))
    return Host(base_url(section, where, URL), per_s=1.0)


def request(host: Host, first: date, last: date) -> HttpGet:
    """The rates of some days in one request."""
    return host.get(
        f"/service/data/EXR/D.{'+'.join(CURRENCIES)}.EUR.SP00.A",
        ("format", "csvdata"),
        ("detail", "dataonly"),
        ("startPeriod", first.isoformat()),
        ("endPeriod", last.isoformat()),
    )


def read(body: bytes, first: date, last: date) -> Days:
    """The rates of the days that were asked for; ValueError where the answer is none."""
    try:
        rows = list(csv.DictReader(body.decode().splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(str(error)) from None
    found: Days = {}
    for row in rows:
        if not {"CURRENCY", "TIME_PERIOD", "OBS_VALUE"} <= row.keys():
            raise ValueError("it has no columns CURRENCY, TIME_PERIOD and OBS_VALUE")
        day = date.fromisoformat(row["TIME_PERIOD"] or "")
        if row["CURRENCY"] in CURRENCIES and first <= day <= last:
            found.setdefault(day, {})[row["CURRENCY"]] = _per_euro(row["OBS_VALUE"] or "")
    if body.strip() and not rows and b"TIME_PERIOD" not in body:
        raise ValueError("it is no CSV of rates")
    return {day: rates for day, rates in found.items() if rates.keys() >= set(CURRENCIES)}


def _per_euro(written: str) -> Decimal:
    value = number(written)
    if not LEAST <= value <= MOST:
        raise ValueError(f"{written:.40} is no rate")
    return value


def settled(days: Iterable[date], now_us: int) -> list[date]:
    """Of days without rates those that will have none: two days are over since."""
    newest = last_day(now_us) - timedelta(days=2)
    return [day for day in days if day <= newest]
