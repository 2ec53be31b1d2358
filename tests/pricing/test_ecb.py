"""Which days rates of the European Central Bank are expected for, and which rate counts at a time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from chainfolio.pricing.ecb import (
    MAX_CARRIED_DAYS,
    Days,
    final_days,
    last_day,
    missing_days,
    parse_rates,
    rate_of,
    weekdays,
)

FRIDAY, MONDAY, TUESDAY = date(2026, 1, 2), date(2026, 1, 5), date(2026, 1, 6)
RATES = {"USD": Decimal("1.25"), "CAD": Decimal("1.5"), "CHF": Decimal("0.9"), "SGD": Decimal("1.6")}


def us(day: date, hour: int, second: int = 0) -> int:
    return int(datetime(day.year, day.month, day.day, hour, 0, second, tzinfo=UTC).timestamp()) * 1_000_000


def test_weekdays_are_both_ends_and_no_day_of_a_weekend() -> None:
    assert weekdays(FRIDAY, MONDAY) == [FRIDAY, MONDAY]
    assert weekdays(FRIDAY, FRIDAY) == [FRIDAY]
    assert weekdays(MONDAY, FRIDAY) == []


def test_rates_of_a_day_are_published_at_15_utc_and_final_two_days_later() -> None:
    assert last_day(us(TUESDAY, 15)) == TUESDAY
    assert last_day(us(TUESDAY, 15) - 1) == MONDAY
    days = [MONDAY - timedelta(days=3), MONDAY - timedelta(days=2), MONDAY - timedelta(days=1)]
    assert final_days(days, us(MONDAY, 15)) == days[:2]


def test_days_are_missing_back_to_the_newest_stored_rates() -> None:
    assert missing_days(TUESDAY, {}) == [*weekdays(TUESDAY - timedelta(days=MAX_CARRIED_DAYS), TUESDAY)][::-1]
    assert missing_days(TUESDAY, {FRIDAY: RATES}) == [TUESDAY, MONDAY]
    assert missing_days(TUESDAY, {FRIDAY: RATES, MONDAY: {}}) == [TUESDAY]
    assert missing_days(TUESDAY, {TUESDAY: RATES}) == []


@pytest.mark.parametrize(
    ("currency", "stored", "per_usd"),
    [
        ("EUR", {TUESDAY: RATES}, "0.8"),
        ("USD", {TUESDAY: RATES}, "1"),
        ("CAD", {TUESDAY: RATES, MONDAY: {**RATES, "CAD": Decimal(9)}}, "1.2"),
        ("CAD", {TUESDAY: {}, FRIDAY: RATES}, "1.2"),
        ("CAD", {TUESDAY: {"USD": Decimal(1)}, MONDAY: RATES}, None),
        ("EUR", {TUESDAY: {"CAD": Decimal(1)}}, None),
        ("CAD", {TUESDAY + timedelta(days=1): RATES}, None),
        ("CAD", {}, None),
    ],
    ids=["base", "usd", "newest", "carried", "lacks-it", "lacks-usd", "later", "none"],
)
def test_the_newest_rates_of_ten_days_count(currency: str, stored: Days, per_usd: str | None) -> None:
    rate = rate_of(currency, us(TUESDAY, 16), stored)
    assert (rate and rate.per_usd) == (per_usd and Decimal(per_usd))
    if rate is not None:
        assert ("carried forward" in rate.source) == (TUESDAY not in stored or not stored[TUESDAY])


def test_rates_are_carried_for_ten_days_and_no_longer() -> None:
    stored = {FRIDAY: RATES}
    last = FRIDAY + timedelta(days=MAX_CARRIED_DAYS)
    assert rate_of("CAD", us(last, 16), stored) is not None
    assert rate_of("CAD", us(last + timedelta(days=1), 16), stored) is None


def test_a_peg_has_a_rate_from_its_first_day() -> None:
    first = date(1997, 11, 2)
    assert rate_of("AED", us(first, 15) - 1, {}) is None
    rate = rate_of("AED", us(first, 15), {})
    assert rate is not None
    assert (rate.per_usd, rate.source) == (Decimal("3.6725"), "peg of 3.6725 per USD")


def csv(*rows: tuple[str, date, str]) -> bytes:
    lines = [f"{currency},{day},{rate}" for currency, day, rate in rows]
    return "\n".join(["CURRENCY,TIME_PERIOD,OBS_VALUE", *lines]).encode()


def complete(day: date) -> list[tuple[str, date, str]]:
    return [(currency, day, str(rate)) for currency, rate in RATES.items()]


def test_only_complete_days_of_the_request_are_parsed() -> None:
    rows = [*complete(FRIDAY), *complete(MONDAY), *complete(TUESDAY)[1:], ("SEK", MONDAY, "11")]
    assert parse_rates(csv(*rows), FRIDAY, TUESDAY) == {FRIDAY: RATES, MONDAY: RATES}
    assert parse_rates(csv(*rows), MONDAY, MONDAY) == {MONDAY: RATES}
    assert parse_rates(b"", FRIDAY, TUESDAY) == parse_rates(csv(), FRIDAY, TUESDAY) == {}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\xff", "utf-8"),
        (b"<html>", "it is no CSV of rates"),
        (b"CURRENCY,TIME_PERIOD\nUSD,2026-01-02", "it has no columns CURRENCY, TIME_PERIOD and OBS_VALUE"),
        (csv(("USD", FRIDAY, "0.0000009")), "0.0000009 is no rate"),
        (csv(("USD", FRIDAY, "1000000.1")), "1000000.1 is no rate"),
        (csv(("USD", FRIDAY, "-1")), "-1 is no rate"),
        (csv(("USD", FRIDAY, "")), "no plain number"),
    ],
    ids=["bytes", "html", "columns", "small", "large", "negative", "empty"],
)
def test_a_body_without_rates_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_rates(body, FRIDAY, TUESDAY)
    bounds = {**RATES, "CAD": Decimal("0.000001"), "SGD": Decimal(1_000_000)}
    rows = [(currency, FRIDAY, f"{rate:f}") for currency, rate in bounds.items()]
    assert parse_rates(csv(*rows), FRIDAY, FRIDAY) == {FRIDAY: bounds}
