"""Reference rates of the European Central Bank from a real server, on weekends and holidays."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from aiohttp import web

from chainfolio.contracts import FIAT
from chainfolio.engine.prices.fiat import RETRY_S, Fiat
from chainfolio.engine.prices.rate_store import RateStore
from chainfolio.errors import BadSettings, StorageFull
from chainfolio.pricing import ecb
from chainfolio.pricing.ecb import FiatRate
from chainfolio.pricing.http_reads import Http
from chainfolio.pricing.vendors import VendorHost
from tests.engine.test_rate_store import store_at
from tests.pricing.recorded import file
from tests.pricing.vendor_server import sending, vendor

Published = Mapping[date, Mapping[str, str]]
FRIDAY, MONDAY = date(2024, 3, 28), date(2024, 4, 1)  # Good Friday is the 29th, Easter Monday the 1st
RATES: Published = {
    date(2024, 3, 27): {"USD": "1.0816", "CAD": "1.4700", "CHF": "0.9810", "SGD": "1.4580"},
    date(2024, 3, 28): {"USD": "1.0811", "CAD": "1.4672", "CHF": "0.9766", "SGD": "1.4587"},
    date(2024, 4, 2): {"USD": "1.0749", "CAD": "1.4607", "CHF": "0.9765", "SGD": "1.4532"},
}


def timestamp_us(day: date, hour: int = 12) -> int:
    return int(datetime(day.year, day.month, day.day, hour, tzinfo=UTC).timestamp()) * 1_000_000


def answered(request: web.Request, published: Published) -> str:
    """Answer as the bank: one line for each day and currency of the period, in the bank's order."""
    *_, series = request.path.split("/")
    currencies = series.split(".")[1].split("+")
    first, last = (date.fromisoformat(request.query[name]) for name in ("startPeriod", "endPeriod"))
    lines = [
        f"EXR.D.{currency}.EUR.SP00.A,D,{currency},EUR,SP00,A,{day},{rates[currency]}"
        for currency in sorted(currencies)
        for day, rates in sorted(published.items())
        if first <= day <= last and currency in rates
    ]
    return "\n".join(["KEY,FREQ,CURRENCY,CURRENCY_DENOM,EXR_TYPE,EXR_SUFFIX,TIME_PERIOD,OBS_VALUE", *lines, ""])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RateStore]:
    with store_at(tmp_path) as rate_store:
        yield rate_store


def fiat(http: Http, url: str, store: RateStore | None = None) -> Fiat:
    return Fiat(http.environment, http, ecb.ecb_host({"base_url": url}, "ecb"), store)


async def rate(bank: Fiat, currency: str, at_us: int) -> FiatRate:
    fiat_rate = await bank.at(currency, at_us)
    assert isinstance(fiat_rate, FiatRate), fiat_rate
    return fiat_rate


NOW_S = timestamp_us(date(2024, 5, 2)) // 1_000_000


@pytest.mark.parametrize(
    ("day", "hour", "of", "says"),
    [
        (date(2024, 3, 28), 15, date(2024, 3, 28), "reference rate of 2024-03-28"),
        (date(2024, 3, 28), 14, date(2024, 3, 27), "reference rate of 2024-03-27"),  # it is not out yet
        (date(2024, 3, 29), 15, date(2024, 3, 28), "of 2024-03-28, carried forward to 2024-03-29"),  # Good Friday
        (date(2024, 3, 31), 12, date(2024, 3, 28), "of 2024-03-28, carried forward to 2024-03-30"),  # Sunday, clocks
        (date(2024, 4, 1), 23, date(2024, 3, 28), "of 2024-03-28, carried forward to 2024-04-01"),  # Easter Monday
        (date(2024, 4, 2), 15, date(2024, 4, 2), "reference rate of 2024-04-02"),
    ],
)
async def test_a_day_without_rates_has_the_last_before_it_and_says_so(
    day: date, hour: int, of: date, says: str
) -> None:
    async with vendor(lambda request: answered(request, RATES)) as bank, sending(NOW_S) as http:
        fiat_rates = {
            currency: await rate(fiat(http, bank.url), currency, timestamp_us(day, hour)) for currency in ("EUR", "CHF")
        }
    usd = Fraction(RATES[of]["USD"])
    for currency, per_euro in (("EUR", Fraction(1)), ("CHF", Fraction(RATES[of]["CHF"]))):
        assert abs(Fraction(fiat_rates[currency].per_usd) - per_euro / usd) <= Fraction(1, 2 * 10**18)
        assert fiat_rates[currency].source.endswith(says)


async def test_the_dirham_has_its_peg_and_asks_nobody() -> None:
    async with sending(NOW_S) as http:
        bank = Fiat(http.environment, http, None, None)
        assert await bank.at("AED", timestamp_us(MONDAY)) == FiatRate(Decimal("3.6725"), "peg of 3.6725 per USD")
        assert await bank.at("AED", timestamp_us(date(1997, 11, 1))) == "AED had no peg then"
        assert http.requests == 0


async def test_a_bank_that_is_not_configured_is_not_asked_and_says_what_to_do() -> None:
    async with sending(NOW_S) as http:
        reason = await Fiat(http.environment, http, None, None).at("EUR", timestamp_us(MONDAY))
    assert reason == "the European Central Bank is not asked: [ecb] is not in the file of prices"


async def test_what_is_known_is_kept_and_an_old_date_is_answered_without_the_bank(store: RateStore) -> None:
    async with vendor(lambda request: answered(request, RATES)) as bank, sending(NOW_S) as http:
        first = [await rate(fiat(http, bank.url, store), "CAD", timestamp_us(day)) for day in (FRIDAY, MONDAY)]
        assert len(bank.requests) == 1
    async with sending(NOW_S) as http:
        offline_bank = Fiat(http.environment, http, VendorHost("http://127.0.0.1:1"), store)
        assert [await rate(offline_bank, "CAD", timestamp_us(day)) for day in (FRIDAY, MONDAY)] == first
        assert http.requests == 0
    assert store.load()[date(2024, 3, 29)] == {}  # a holiday is known to be one


async def test_a_rate_that_the_bank_changes_later_stays_as_it_was_kept(store: RateStore) -> None:
    changed = {day: {**rates, "CHF": "0.5"} for day, rates in RATES.items()}
    changed[date(2024, 3, 29)] = {**RATES[date(2024, 3, 28)], "CHF": "0.4"}  # and rates of what was a holiday
    moments = [timestamp_us(day, 16) for day in (*RATES, date(2024, 3, 29))]
    async with vendor(lambda request: answered(request, RATES)) as bank, sending(NOW_S) as http:
        first = [await rate(fiat(http, bank.url, store), "CHF", each) for each in moments]
    async with vendor(lambda request: answered(request, changed)) as bank, sending(NOW_S) as http:
        restarted = fiat(http, bank.url, store)
        assert isinstance(
            await restarted.at("CHF", timestamp_us(date(2024, 3, 18))), str
        )  # so it asks for those days again
        assert len(bank.requests) == 1
        assert [await rate(restarted, "CHF", each) for each in moments] == first
    assert store.load()[date(2024, 3, 28)]["CHF"] == Decimal("0.9766")


async def test_rates_that_cannot_be_kept_are_answered_all_the_same_and_kept_as_soon_as_they_can(
    store: RateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StorageFull("lake")

    changed = {day: {**rates, "CHF": "0.5"} for day, rates in RATES.items()}
    async with vendor(lambda request: answered(request, RATES)) as bank, sending(NOW_S) as http:
        reader = fiat(http, bank.url, store)
        with monkeypatch.context() as patch:
            patch.setattr(store.lake, "append", full)
            first = await rate(reader, "CHF", timestamp_us(FRIDAY, 16))
        assert store.load() == {}
        bank.answer = lambda request: answered(request, changed)
        await reader.at("CHF", timestamp_us(date(2024, 3, 18)))
        assert await rate(fiat(http, bank.url, store), "CHF", timestamp_us(FRIDAY, 16)) == first


async def test_a_day_whose_rates_are_not_out_is_asked_for_again_and_not_at_once() -> None:
    published = dict(RATES)
    del published[date(2024, 4, 2)]
    now_us = timestamp_us(date(2024, 4, 2), 16)
    async with vendor(lambda request: answered(request, published)) as server, sending(now_us // 1_000_000) as http:
        bank = fiat(http, server.url)
        late = await rate(bank, "EUR", now_us)
        assert late.source.endswith("of 2024-03-28, carried forward to 2024-04-02")
        assert await rate(bank, "EUR", now_us) == late
        assert len(server.requests) == 1
        published[date(2024, 4, 2)] = RATES[date(2024, 4, 2)]
        await http.environment.clock.sleep(RETRY_S)
        assert (await rate(bank, "EUR", now_us)).source.endswith("reference rate of 2024-04-02")


async def test_a_year_of_days_is_two_requests() -> None:
    days = [date(2023, 1, 2).fromordinal(date(2023, 1, 2).toordinal() + each) for each in range(365)]
    weekdays = {day: RATES[FRIDAY] for day in days if day.weekday() < 5}
    async with vendor(lambda request: answered(request, weekdays)) as server, sending(NOW_S) as http:
        bank = fiat(http, server.url)
        for day in days:
            await rate(bank, "SGD", timestamp_us(day, 16))
        assert len(server.requests) <= 2


HEAD = "KEY,FREQ,CURRENCY,CURRENCY_DENOM,EXR_TYPE,EXR_SUFFIX,TIME_PERIOD,OBS_VALUE\n"
LINE = "k,D,{},EUR,SP00,A,2024-03-28,{}\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<html>down</html>", "no CSV of rates"),
        (b"\xff\xfe", "utf-8"),
        ("A,B\n1,2\n", "no columns"),
        (HEAD + LINE.format("USD", "NaN"), "no plain number"),
        (HEAD + LINE.format("USD", "-1.1"), "is no rate"),
        (HEAD + LINE.format("USD", "0"), "is no rate"),
        (HEAD + LINE.format("USD", "1e40"), "is no rate"),
        (HEAD + LINE.format("USD", ""), "no plain number"),
        (HEAD + "k,D,USD,EUR,SP00,A,2024-02-30,1.1\n", "day"),
        (HEAD + LINE.format("USD", "1.1"), "has no rates of"),  # the others are missing
        (503, "status 503"),
        (404, "status 404"),
    ],
)
async def test_an_answer_that_is_none_is_a_reason_and_nothing_is_kept(
    body: str | bytes | int, expected: str, store: RateStore
) -> None:
    async with vendor(lambda _: body) as server, sending(NOW_S) as http:
        reason = await fiat(http, server.url, store).at("EUR", timestamp_us(FRIDAY))
    assert isinstance(reason, str)
    assert expected in reason
    assert not any(store.load().values())


def test_a_section_of_the_bank_that_is_wrong_is_a_settings_error() -> None:
    for section in ({"url": "x"}, {"base_url": "ftp://x"}):
        with pytest.raises(BadSettings):
            ecb.ecb_host(section, "prices.toml: ecb")


async def test_the_recorded_file_of_the_bank_is_reproduced() -> None:
    """Every day of it, in every fiat currency, from a server that has the recorded rates."""
    with gzip.open(file("ecb_eur_reference_rates.csv.gz"), "rt") as lines:
        rows = [row for row in csv.DictReader(lines) if all(row[name] for name in ecb.CURRENCIES)]
    recorded = {date.fromisoformat(row["Date"]): {name: row[name] for name in ecb.CURRENCIES} for row in rows}
    assert len(recorded) > 3000
    newest = max(recorded)
    async with vendor(lambda request: answered(request, recorded)) as server, sending() as http:
        http.environment.clock.now_s = timestamp_us(newest, 23) // 1_000_000  # type: ignore[attr-defined]
        bank = fiat(http, server.url)
        for day, rates in recorded.items():
            for currency in set(FIAT) - {"USD", "AED"}:
                fiat_rate = await rate(bank, currency, timestamp_us(day, 15))
                exact = Fraction(rates.get(currency, "1")) / Fraction(rates["USD"])
                assert abs(Fraction(fiat_rate.per_usd) - exact) <= Fraction(1, 2 * 10**18)
                assert fiat_rate.source.endswith(f"reference rate of {day}")


async def test_of_a_day_that_is_told_twice_the_first_rates_count_in_every_process(store: RateStore) -> None:
    """Each request covers the days around it too: later answers for these days change nothing."""
    later = date(2024, 4, 2)
    changed = {day: {**rates, "CHF": "0.5"} for day, rates in RATES.items() if day != later}
    async with vendor(lambda request: answered(request, RATES)) as bank, sending(NOW_S) as http:
        second_process = fiat(http, bank.url, store)
        assert isinstance(
            await second_process.at("CHF", timestamp_us(date(2020, 5, 5))), str
        )  # it has read the table: there is none
        first = await rate(fiat(http, bank.url, store), "CHF", timestamp_us(FRIDAY, 16))
        bank.answer = lambda request: answered(request, changed)
        assert (await rate(second_process, "CHF", timestamp_us(FRIDAY, 16))) == first
        assert (await rate(fiat(http, bank.url, store), "CHF", timestamp_us(FRIDAY, 16))) == first
