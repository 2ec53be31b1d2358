"""Euro reference rates of the European Central Bank, parsed exactly and converted to units per USD.

The rates of a day count from 15:00 UTC on, when they are published both in winter and in summer. A day without rates
uses the last ones before it, and the source of a rate names their day.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from chainfolio import amounts
from chainfolio.price_sources import Section
from chainfolio.pricing.http_reads import HttpGet
from chainfolio.pricing.vendors import VendorHost, base_url, check_keys, parse_number

SOURCE: Final = "ecb"
URL: Final = "https://data-api.ecb.europa.eu"
BASE: Final = "EUR"
CURRENCIES: Final = ("USD", "CAD", "CHF", "SGD")  # per euro
PUBLISHED_S: Final = 15 * 3600  # after midnight UTC
MAX_CARRIED_DAYS: Final = 10  # longer than any holidays
DAY_S: Final = 86_400
SATURDAY: Final = 5
PLACES: Final = 18
MIN_RATE, MAX_RATE = Decimal("1E-6"), Decimal("1E6")
PEGS: Final = {"AED": (Decimal("3.6725"), date(1997, 11, 2))}  # units per USD, and the first day of the peg

Rates = dict[str, Decimal]  # units per euro, by currency
Days = dict[date, Rates]  # empty rates: nothing was published on that day


@dataclass(frozen=True, slots=True)
class FiatRate:
    """Units of a currency per USD, and a description of the rate's source."""

    per_usd: Decimal
    source: str


def last_day(time_us: int) -> date:
    """Return the newest day whose rates, if it has any, are published at a time."""
    return date(1970, 1, 1) + timedelta(days=(time_us // 1_000_000 - PUBLISHED_S) // DAY_S)


def candidate_days(day: date) -> Iterator[date]:
    """Return the weekdays whose rates may count for a day, the newest first."""
    return reversed(weekdays(day - timedelta(days=MAX_CARRIED_DAYS), day))


def weekdays(first: date, last: date) -> list[date]:
    """Return the days from `first` to `last`, both included, without weekends."""
    days = (first + timedelta(days=i) for i in range((last - first).days + 1))
    return [day for day in days if day.weekday() < SATURDAY]


def missing_days(day: date, stored: Mapping[date, Rates]) -> list[date]:
    """Return the days to download before the rates that count for a day are certain; empty if they are."""
    missing = []
    for candidate in candidate_days(day):
        if stored.get(candidate):
            break
        if candidate not in stored:
            missing.append(candidate)
    return missing


def rate_of(currency: str, time_us: int, stored: Mapping[date, Rates]) -> FiatRate | None:
    """Return the rate of a currency at a time: that of its peg in `PEGS`, else the newest stored one.

    None before a peg began, if no rates of the last `MAX_CARRIED_DAYS` days are stored, or if the newest ones lack the
    currency: older ones are then not searched.
    """
    newest = last_day(time_us)
    if currency in PEGS:
        per_usd, first_day = PEGS[currency]
        return FiatRate(per_usd, f"peg of {amounts.text(per_usd)} per USD") if newest >= first_day else None
    for day in candidate_days(newest):
        if rates := stored.get(day):
            per_euro = Fraction(1) if currency == BASE else Fraction(rates[currency]) if currency in rates else None
            if per_euro is None or "USD" not in rates:
                return None
            scaled = round(per_euro / Fraction(rates["USD"]) * 10**PLACES)
            carried = f", carried forward to {newest}" if day < newest else ""
            source = f"European Central Bank, reference rate of {day}{carried}"
            return FiatRate(amounts.EXACT.scaleb(Decimal(scaled), -PLACES), source)
    return None


def ecb_host(section: Section, location: str) -> VendorHost:
    """Return the address of the bank or its mirror; raise BadSettings if the section is malformed."""
    check_keys(section, location, ("base_url",))
    return VendorHost(base_url(section, location, URL), max_rps=1.0)


def rates_request(host: VendorHost, first: date, last: date) -> HttpGet:
    """Return the request for the rates of the days from `first` to `last`, both included."""
    return host.get(
        f"/service/data/EXR/D.{'+'.join(CURRENCIES)}.EUR.SP00.A",
        ("format", "csvdata"),
        ("detail", "dataonly"),
        ("startPeriod", first.isoformat()),
        ("endPeriod", last.isoformat()),
    )


def parse_rates(body: bytes, first: date, last: date) -> Days:
    """Parse the rates of the days from `first` to `last`: units per euro, by day and currency.

    Days without the rates of all currencies are left out; an empty body gives none.

    Raises:
        ValueError: The body is no CSV of rates.
    """
    try:
        rows = list(csv.DictReader(body.decode().splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(str(error)) from None
    days: Days = {}
    for row in rows:
        if not {"CURRENCY", "TIME_PERIOD", "OBS_VALUE"} <= row.keys():
            raise ValueError("it has no columns CURRENCY, TIME_PERIOD and OBS_VALUE")
        day = date.fromisoformat(row["TIME_PERIOD"] or "")
        if row["CURRENCY"] in CURRENCIES and first <= day <= last:
            days.setdefault(day, {})[row["CURRENCY"]] = _parse_rate(row["OBS_VALUE"] or "")
    if body.strip() and not rows and b"TIME_PERIOD" not in body:
        raise ValueError("it is no CSV of rates")
    return {day: rates for day, rates in days.items() if rates.keys() >= set(CURRENCIES)}


def _parse_rate(text: str) -> Decimal:
    value = parse_number(text)
    if not MIN_RATE <= value <= MAX_RATE:
        raise ValueError(f"{text:.40} is no rate")
    return value


def final_days(days: Iterable[date], now_us: int) -> list[date]:
    """Return the days without rates that will stay without: they ended at least two days ago."""
    newest = last_day(now_us) - timedelta(days=2)
    return [day for day in days if day <= newest]
