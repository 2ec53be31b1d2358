"""Canadian rules: published examples of average costs and superficial losses, and period edges."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.portfolio.pnl.canada import PERHAPS_SUPERFICIAL, SUPERFICIAL
from chainfolio.portfolio.pnl.entries import MONEY_DIGITS, Entry, Kind
from chainfolio.portfolio.pnl.gains import SHORT, Gains
from chainfolio.portfolio.pnl.methods import gains_of
from tests.portfolio.test_tax_year import report

MONEY = 10**MONEY_DIGITS


def entry(day: str, kind: Kind, units: int, value: int | None, asset: str = "chain:eth", to: str = "") -> Entry:
    """An entry at noon in Toronto, its value in whole dollars."""
    noon = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=ZoneInfo("America/Toronto"))
    money = None if value is None else value * MONEY
    return Entry(int(noon.timestamp()) * 1_000_000, kind, asset, units, money, to=to, transaction=f"{kind} {day}")


def canadian(*entries: Entry) -> Gains:
    return gains_of(entries, "ca", zone=ZoneInfo("America/Toronto"))


def rows(gains: Gains) -> list[tuple[int, int, str]]:
    """Units, gain in whole dollars and rule of each disposal."""
    return [(each.quantity, (each.gain or 0) // MONEY, each.rule) for each in gains.gains]


def cost(gains: Gains) -> int:
    return sum((each.cost or 0) // MONEY for each in gains.remaining)


def test_all_units_cost_their_average_and_a_disposal_leaves_it() -> None:
    # CRA Guide T4037, Identical properties: the total cost divided by the number of units, at each purchase.
    gains = canadian(
        entry("2020-01-02", "buy", 100, 1_500),
        entry("2020-03-02", "buy", 150, 3_000),
        entry("2020-06-02", "sell", 200, 4_000),
        entry("2020-09-02", "buy", 350, 7_350),
    )
    assert rows(gains) == [(200, 400, "pool")]
    assert cost(gains) == 50 * 18 + 7_350


def test_a_loss_is_limited_to_what_was_acquired_again() -> None:
    # IT-456R, 12: of 50 properties 20 are sold at a loss, and 15 are acquired again: 15 of the 20 are superficial.
    gains = canadian(
        entry("2020-01-02", "buy", 50, 5_000),
        entry("2020-06-02", "sell", 20, 1_600),
        entry("2020-06-20", "buy", 15, 1_200),
    )
    assert rows(gains) == [(15, 0, SUPERFICIAL), (5, -100, "pool")]
    assert cost(gains) == 30 * 100 + 1_200 + 300


def test_what_was_acquired_before_makes_a_loss_superficial() -> None:
    # CRA document 2005-0150811E5: the least of 100 disposed of, 100 acquired and 100 held at the end, of a loss of 100.
    gains = canadian(
        entry("2006-01-01", "buy", 100, 300),
        entry("2006-03-01", "buy", 100, 100),
        entry("2006-03-02", "sell", 100, 100),
    )
    assert rows(gains) == [(100, 0, SUPERFICIAL)]
    assert cost(gains) == 200 + 100


def test_a_superficial_loss_is_a_loss_when_what_was_acquired_is_sold() -> None:
    gains = canadian(
        entry("2018-06-01", "buy", 500, 25_000),
        entry("2019-12-15", "sell", 400, 16_800),
        entry("2020-01-07", "buy", 400, 16_000),
        entry("2020-10-05", "sell", 500, 22_500),
    )
    assert rows(gains) == [(400, 0, SUPERFICIAL), (500, -1_700, "pool")]
    assert cost(gains) == 0


@pytest.mark.parametrize(
    ("bought", "is_denied"),
    [("2020-05-02", False), ("2020-05-03", True), ("2020-06-02", True), ("2020-07-02", True), ("2020-07-03", False)],
)
def test_the_period_is_thirty_days_before_and_after(bought: str, is_denied: bool) -> None:
    gains = canadian(
        entry("2020-01-02", "buy", 10, 1_000), entry("2020-06-02", "sell", 10, 500), entry(bought, "buy", 10, 1_000)
    )
    assert any(each.rule == SUPERFICIAL for each in gains.gains) is is_denied
    assert sum((each.gain or 0) for each in gains.gains) + 2_000 * MONEY == 500 * MONEY + cost(gains) * MONEY


def test_nothing_is_superficial_if_nothing_is_held_at_the_end_or_there_is_a_gain() -> None:
    sold_again = canadian(
        entry("2020-01-02", "buy", 10, 1_000),
        entry("2020-06-02", "sell", 10, 500),
        entry("2020-06-10", "buy", 10, 400),
        entry("2020-06-20", "sell", 10, 300),
    )
    assert rows(sold_again) == [(10, -500, "pool"), (10, -100, "pool")]
    with_gain = canadian(
        entry("2020-01-02", "buy", 10, 1_000), entry("2020-06-02", "sell", 10, 1_500), entry("2020-06-03", "buy", 10, 9)
    )
    assert rows(with_gain) == [(10, 500, "pool")]


def test_a_loss_without_a_price_makes_the_cost_of_what_replaces_it_unknown() -> None:
    gains = canadian(entry("2020-05-30", "buy", 10, 1_000), entry("2020-06-02", "sell", 4, None))
    (lots,) = gains.remaining
    assert lots.cost is None
    assert lots.reason.startswith(PERHAPS_SUPERFICIAL)
    later = canadian(entry("2020-01-02", "buy", 10, 1_000), entry("2020-06-02", "sell", 4, None))
    assert [each.cost for each in later.remaining] == [600 * MONEY]


def test_one_asset_on_two_chains_has_one_average() -> None:
    gains = canadian(
        entry("2020-01-02", "buy", 10, 1_000, "one:eth"),
        entry("2020-01-03", "buy", 10, 2_000, "two:eth"),
        entry("2020-02-01", "depart", 4, None, "one:eth", "transfer"),
        entry("2020-02-02", "arrive", 4, None, "two:eth", "transfer"),
        entry("2020-06-02", "sell", 14, 2_800, "two:eth"),
    )
    assert rows(gains) == [(14, 700, "pool")]
    assert [(each.asset, each.quantity, each.cost) for each in gains.remaining] == [
        ("one:eth", 6, 900 * MONEY),
        ("two:eth", 0, 0),
    ]


def test_more_than_came_that_departs_is_in_the_pool_at_an_unknown_cost() -> None:
    gains = canadian(
        entry("2020-02-01", "depart", 4, None, "one:eth", "transfer"),
        entry("2020-02-02", "arrive", 4, None, "two:eth", "transfer"),
    )
    assert {(each.asset, each.quantity, each.cost, each.reason) for each in gains.remaining if each.quantity} == {
        ("two:eth", 4, None, SHORT)
    }


def test_a_year_in_canada_leaves_denied_losses_out() -> None:
    entries = [entry("2019-12-15", "buy", 10, 1_000), entry("2019-12-20", "sell", 5, 100)]
    document = report([*entries, entry("2020-03-01", "sell", 5, 100)], "ca", 2019, "ca", "America/Toronto")
    assert (document.first_day, document.currency) == ("2019-01-01", "CAD")
    assert [(each.term, each.gain) for each in document.terms] == [("gain", "0")]
    later = report([*entries, entry("2020-03-01", "sell", 5, 100)], "ca", 2020, "ca", "America/Toronto")
    assert [each.gain for each in later.terms] == ["-800"]


trades = st.lists(st.tuples(st.integers(0, 120), st.booleans(), st.integers(1, 9), st.integers(0, 99)), max_size=12)


@given(trades)
def test_no_unit_of_money_is_lost(steps: list[tuple[int, bool, int, int]]) -> None:
    """Purchase costs equal those of disposals and remaining lots: a denied loss only moves."""
    day = 86_400 * 1_000_000
    entries = [
        Entry(1_600_000_000_000_000 + at * day + i, "buy" if buys else "sell", "chain:eth", units, value * MONEY)
        for i, (at, buys, units, value) in enumerate(steps)
    ]
    gains = canadian(*entries)
    purchase_cost = sum(each.value or 0 for each in entries if each.kind == "buy")
    disposed_cost = sum(each.cost or 0 for each in gains.gains)
    assert disposed_cost + sum(each.cost or 0 for each in gains.remaining) == purchase_cost
