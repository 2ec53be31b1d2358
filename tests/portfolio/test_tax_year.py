"""Tax years: published examples of holding periods, days, currencies and sums."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.portfolio.pnl.entries import MONEY_DIGITS, AssetFacts, Entry, Kind
from chainfolio.portfolio.pnl.gains import NO_PRICE
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.tax_year import (
    JURISDICTIONS,
    NO_ACQUISITION,
    OLD_LOTS,
    TaxYear,
    TaxYearDocument,
    converted,
    german_term,
    tax_year_document,
    us_term,
)

MONEY = 10**MONEY_DIGITS
THIRD = ("chain", "third", "")
FACTS = {"chain:eth": AssetFacts("eth", 1, "chain", "eth")}


def entry(kind: Kind, day: str, tenths: int, value: int | None, fee: int = 0) -> Entry:
    """An entry at noon UTC, in tenths of a coin and whole units of money."""
    time_us = int(datetime.fromisoformat(f"{day}T12:00+00:00").timestamp()) * 1_000_000
    units = None if value is None else value * MONEY
    return Entry(time_us, kind, "chain:eth", tenths, units, fee * MONEY, transaction=f"{kind} {day}")


def report(entries: list[Entry], key: str, year: int, method: str = "fifo", zone: str = "UTC") -> TaxYearDocument:
    gains, rules = gains_of(entries, method, zone=ZoneInfo(zone)).gains, JURISDICTIONS[key]
    year_of_rules = TaxYear(rules, year, ZoneInfo(zone), rules.currency, method, lots_by_wallet=False)
    return tax_year_document(gains, FACTS, year_of_rules, ["me"])


def test_income_is_listed_by_day_kind_and_asset() -> None:
    entries = [
        entry("income", "2023-05-01", 3, 30),
        entry("income", "2023-05-01", 4, 40)._replace(transaction="second"),
        entry("income", "2023-05-01", 5, None)._replace(transaction="third"),
        entry("income", "2023-05-02", 1, 10),
        entry("income", "2024-05-02", 1, 10),
        entry("sell", "2023-05-03", 1, 10),
    ]
    types = {("chain", name, ""): "CLAIM" for name in ("income 2023-05-01", "second", "income 2023-05-02")}
    year = TaxYear(JURISDICTIONS["none"], 2023, UTC, "USD", "fifo", lots_by_wallet=False)
    document = tax_year_document(gains_of(entries, "fifo").gains, FACTS, year, ["me"], (), {**types, THIRD: "AIRDROP"})
    assert [(row.day, row.kind, row.amount, row.value, row.reason) for row in document.incomes] == [
        ("2023-05-01", "AIRDROP", "0.5", "N/A", NO_PRICE),
        ("2023-05-01", "CLAIM", "0.7", "70", ""),
        ("2023-05-02", "CLAIM", "0.1", "10", ""),
    ]


def sums(document: TaxYearDocument) -> dict[str, tuple[str, str, str]]:
    return {each.term: (each.proceeds, each.cost, each.gain) for each in document.terms}


@pytest.mark.parametrize(
    ("acquired", "disposed", "term"),
    [
        # Internal Revenue Code § 1222 and IRS Publication 544: counted from the day after the acquisition.
        ("2012-09-19", "2013-09-19", "short-term"),
        ("2012-09-19", "2013-09-20", "long-term"),
        ("2012-11-30", "2013-11-30", "short-term"),
        ("2012-11-30", "2013-12-01", "long-term"),
        # Revenue Ruling 66-7: what was acquired on the last day of a month is held by months that end with theirs.
        ("2023-02-28", "2024-02-29", "short-term"),
        ("2023-02-28", "2024-03-01", "long-term"),
        ("2024-02-28", "2025-02-28", "short-term"),
        ("2024-02-28", "2025-03-01", "long-term"),
        ("2024-02-29", "2025-02-28", "short-term"),
        ("2024-02-29", "2025-03-01", "long-term"),
        ("2024-06-01", "2024-06-01", "short-term"),
    ],
)
def test_more_than_a_year_is_long_in_the_united_states(acquired: str, disposed: str, term: str) -> None:
    assert us_term(date.fromisoformat(acquired), date.fromisoformat(disposed)) == term


@pytest.mark.parametrize(
    ("acquired", "disposed", "term"),
    [
        ("2001-01-01", "2001-09-30", "taxable"),
        ("2001-01-01", "2002-01-01", "taxable"),
        ("2001-01-01", "2002-01-02", "exempt"),
        # BGB § 188 (2) and (3): the period ends on the day of the same number, or on the last day of the month.
        ("2023-02-28", "2024-02-28", "taxable"),
        ("2023-02-28", "2024-02-29", "exempt"),
        ("2024-02-29", "2025-02-28", "taxable"),
        ("2024-02-29", "2025-03-01", "exempt"),
    ],
)
def test_more_than_a_year_is_exempt_in_germany(acquired: str, disposed: str, term: str) -> None:
    assert german_term(date.fromisoformat(acquired), date.fromisoformat(disposed)) == term


@given(st.dates(date(2000, 1, 1), date(2100, 1, 1)), st.integers(0, 800))
def test_a_year_is_long_everywhere_but_for_a_day(acquired: date, days: int) -> None:
    disposed = date.fromordinal(acquired.toordinal() + days)
    if days <= 364:
        assert (us_term(acquired, disposed), german_term(acquired, disposed)) == ("short-term", "taxable")
    if days >= 367:
        assert (us_term(acquired, disposed), german_term(acquired, disposed)) == ("long-term", "exempt")


def test_a_sale_of_older_and_newer_lots_is_exempt_and_taxable_in_its_parts() -> None:
    """Buy 0.5 for 700, 0.5 for 1,000 and 1 for 1,600, sell 1.5 for 2,700: 200 are exempt."""
    entries = [
        entry("buy", "2023-03-12", 5, 700),
        entry("buy", "2024-02-01", 5, 1000),
        entry("buy", "2024-04-07", 10, 1600),
        entry("sell", "2024-06-03", 15, 2700),
    ]
    year = report(entries, "de", 2024)
    assert sums(year) == {"taxable": ("1800", "1800", "0"), "exempt": ("900", "700", "200")}
    assert (year.currency, year.exempt_limit, year.first_day, year.last_day) == (
        "EUR",
        "1000",
        "2024-01-01",
        "2024-12-31",
    )
    assert report(entries, "de", 2023).exempt_limit == "600"
    assert sums(report(entries, "us", 2024))["long-term"] == ("900", "700", "200")
    assert [gain.term for gain in year.gains] == ["exempt", "taxable", "taxable"]


def test_a_british_year_begins_on_6_april_in_british_time() -> None:
    """A sale at noon of 5 April is in the year before; one at 23:30 UTC is on 6 April in London."""
    late = entry("sell", "2024-04-05", 1, 30)._replace(
        time_us=int(datetime(2024, 4, 5, 23, 30, tzinfo=UTC).timestamp()) * 1_000_000, transaction="late"
    )
    entries = [entry("buy", "2023-01-01", 10, 100), entry("sell", "2024-04-05", 1, 20), late]
    years = [report(entries, "uk", year, "uk", "Europe/London") for year in (2023, 2024)]
    assert [[gain.transaction for gain in year.gains] for year in years] == [["sell 2024-04-05"], ["late"]]
    assert [(year.first_day, year.last_day) for year in years] == [
        ("2023-04-06", "2024-04-05"),
        ("2024-04-06", "2025-04-05"),
    ]
    assert sums(years[1]) == {"gain": ("30", "10", "20")}


def test_income_and_fees_have_sums_of_their_own_and_what_is_not_known_is_in_no_sum() -> None:
    entries = [
        entry("buy", "2024-01-01", 10, 100),
        entry("income", "2024-02-01", 1, 12),
        entry("fee", "2024-03-01", 1, 11),
        entry("sell", "2024-03-02", 2, None),
        entry("sell", "2024-03-03", 20, 400),
    ]
    year = report(entries, "us", 2024)
    assert (year.income, year.fees) == ("12", "11")
    assert {each.term: (each.count, each.unknown) for each in year.terms} == {
        "short-term": (4, 1),
        "long-term": (0, 0),
        "N/A": (1, 1),
    }
    assert sum(year.unknown.values()) == 2
    short = year.terms[0]
    assert (short.proceeds, short.cost, short.gain, short.known_gain) == (
        "N/A",
        "N/A",
        "N/A",
        "79",
    )  # 1 of the fee, 70 and 8 of the sale
    unpriced = report([entry("income", "2024-02-01", 1, None), entry("fee", "2024-03-01", 1, None)], "none", 2024)
    assert (unpriced.income, unpriced.fees) == ("N/A", "N/A")
    assert sums(year)["long-term"] == ("0", "0", "0")


def test_a_lot_without_a_day_has_no_known_term() -> None:
    entries = [entry("buy", "2024-01-01", 10, 100), entry("sell", "2024-03-03", 5, 400)]
    year = report(entries, "us", 2024, "average")
    assert year.unknown == {NO_ACQUISITION: 1}
    assert sums(report(entries, "none", 2024, "average")) == {"gain": ("400", "50", "350")}


def test_values_are_converted_at_the_day_of_each_entry() -> None:
    """Half a euro per dollar at the purchase, one at the sale: the gain in euro is not that in dollars."""
    entries = [entry("buy", "2024-01-01", 10, 100, 10), entry("sell", "2024-03-03", 10, 90)]
    rates = {entries[0].time_us: Decimal("0.5"), entries[1].time_us: Decimal(1)}
    in_euro = list(converted(entries, rates.__getitem__))
    assert [(each.value, each.fee) for each in in_euro] == [(50 * MONEY, 5 * MONEY), (90 * MONEY, 0)]
    assert sums(report(in_euro, "none", 2024)) == {"gain": ("90", "55", "35")}
    (unknown,) = converted([entry("sell", "2024-03-03", 10, None)], lambda time_us: Decimal(2))
    assert unknown.value is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("buy", "sell", "income", "fee")),
            st.dates(date(2020, 1, 1), date(2025, 12, 31)),
            st.integers(1, 9),
            st.integers(0, 99),
        ),
        max_size=25,
    )
)
def test_the_years_together_have_every_gain_once(rows: list[tuple[Kind, date, int, int]]) -> None:
    entries = [entry(kind, day.isoformat(), raw, value) for kind, day, raw, value in rows]
    gains = [each for each in gains_of(entries, "fifo").gains if each.kind != "income" and each.gain is not None]
    for key in ("none", "us", "de"):
        years = [report(entries, key, year) for year in range(2020, 2026)]
        total = sum(Fraction(term.known_gain) for year in years for term in year.terms)
        assert total == Fraction(sum(each.gain or 0 for each in gains), MONEY)


def test_the_limit_of_a_jurisdiction_is_in_its_own_currency() -> None:
    in_usd = TaxYear(JURISDICTIONS["de"], 2025, UTC, "USD", "fifo", lots_by_wallet=True)
    assert tax_year_document([], {}, in_usd, ["me"]).exempt_limit == ""
    for year, limit in ((2023, "600"), (2024, "1000"), (2025, "1000")):
        in_eur = replace(in_usd, currency="EUR", year=year)
        assert tax_year_document([], {}, in_eur, ["me"]).exempt_limit == limit


@pytest.mark.parametrize(
    ("bought", "addresses", "count"),
    [("2024-06-01", ["me", "mine"], 1), ("2025-01-01", ["me", "mine"], 0), ("2024-06-01", ["me"], 0)],
)
def test_lots_from_before_the_rule_of_wallets_have_an_issue(bought: str, addresses: list[str], count: int) -> None:
    gains = gains_of([entry("buy", bought, 5, 10), entry("sell", "2025-02-01", 5, 20)], "fifo").gains
    year = TaxYear(JURISDICTIONS["us"], 2025, UTC, "USD", "fifo", lots_by_wallet=True)
    issues = tax_year_document(gains, FACTS, year, addresses).issues
    assert [issue.reason for issue in issues] == [OLD_LOTS.format(day="2025-01-01")] * count
