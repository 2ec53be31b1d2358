"""Gains: examples of a tax authority, unknown costs, non-disposals, and properties of all entries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainfolio.contracts import GAIN_METHODS
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.pnl.closing import CurrentHoldings
from chainfolio.portfolio.pnl.entries import ACQUIRED, MONEY_DIGITS, AssetFacts, Entry, Kind, money
from chainfolio.portfolio.pnl.gains import NO_PRICE, SHORT, Gain, Gains, RemainingLots
from chainfolio.portfolio.pnl.lots import LOTS
from chainfolio.portfolio.pnl.methods import CANADA, POOLED, UK, gains_of
from chainfolio.portfolio.pnl.report import COLUMNS, PnlDocument, document, frame

POUND = 10**MONEY_DIGITS
START = datetime(2020, 1, 1, tzinfo=UTC)
few_examples = settings(max_examples=30, deadline=None)


def test_the_settings_know_every_method() -> None:
    assert (*LOTS, UK, CANADA) == GAIN_METHODS


PER_WALLET = [method for method in GAIN_METHODS if method not in POOLED]


def at_us(text: str) -> int:
    time = datetime.fromisoformat(text)
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(time.timestamp()) * 1_000_000


def entry(day: str, kind: Kind, quantity: int, value: int | None = None, **more: Any) -> Entry:
    units = None if value is None else value * POUND
    return Entry(at_us(day), kind, "token", quantity, units, transaction=f"{day} {kind}")._replace(**more)


def pounds(gains: list[Gain]) -> dict[tuple[str, str], tuple[int, int, int]]:
    """By time of the disposal and rule: quantity, cost and gain in whole units of money."""
    results = {}
    for gain in gains:
        assert gain.cost is not None
        assert gain.gain is not None
        key = gain.transaction.split(" ")[0], gain.rule
        assert key not in results
        results[key] = gain.quantity, gain.cost // POUND, gain.gain // POUND
    return results


# --- HM Revenue & Customs, Cryptoassets Manual (Open Government Licence v3.0); the years are ours ---------------------


def test_hmrc_crypto22252_the_same_day_rule() -> None:
    gains = gains_of(
        [
            entry("2020-01-01", "buy", 5_000, 500),
            entry("2020-06-23T08:00", "sell", 1_000, 800),
            entry("2020-06-23T14:00", "buy", 1_600, 1_000),
            entry("2020-06-23T20:00", "sell", 500, 600),
        ],
        "uk",
        unit=POUND,
    )
    assert sum(gain.gain or 0 for gain in gains.gains) == 462 * POUND
    assert sum(gain.cost or 0 for gain in gains.gains) == 938 * POUND
    assert gains.remaining == [RemainingLots("token", "", 5_100, 562 * POUND)]


def test_hmrc_crypto22253_the_30_day_rule() -> None:
    gains = gains_of(
        [
            entry("2020-01-01", "buy", 2_000, 1_000),
            entry("2020-03-31", "sell", 1_000, 400),
            entry("2020-04-20", "sell", 500, 150),
            entry("2020-04-21", "buy", 700, 175),
            entry("2020-04-28", "buy", 500, 100),
            entry("2020-05-01", "buy", 500, 150),
        ],
        "uk",
    )
    costs = [(gain.transaction[:10], gain.acquired_in[:10], gain.quantity, gain.cost) for gain in gains.gains]
    assert costs == [
        ("2020-03-31", "2020-04-21", 700, 175 * POUND),
        ("2020-03-31", "2020-04-28", 300, 60 * POUND),
        ("2020-04-20", "2020-04-28", 200, 40 * POUND),
        ("2020-04-20", "2020-05-01", 300, 90 * POUND),
    ]
    assert sum(gain.gain or 0 for gain in gains.gains[:2]) == 165 * POUND
    assert sum(gain.gain or 0 for gain in gains.gains[2:]) == 20 * POUND
    assert gains.remaining == [RemainingLots("token", "", 2_200, 1_060 * POUND)]


def test_hmrc_crypto22255_the_30_day_rule_and_the_pool() -> None:
    gains = gains_of(
        [
            entry("2020-01-01", "buy", 14_000, 200_000),
            entry("2020-08-30", "sell", 4_000, 160_000),
            entry("2020-09-11", "buy", 500, 17_500),
        ],
        "uk",
    )
    assert pounds(gains.gains) == {
        ("2020-08-30", "30 days"): (500, 17_500, 2_500),
        ("2020-08-30", "pool"): (3_500, 50_000, 90_000),
    }
    assert gains.remaining == [RemainingLots("token", "", 10_500, 150_000 * POUND)]


def test_hmrc_crypto22256_all_three_rules() -> None:
    gains = gains_of(
        [
            entry("2020-01-01", "buy", 100_000, 300_000),
            entry("2020-07-31T09:00", "buy", 10_000, 45_000),
            entry("2020-07-31T10:00", "sell", 30_000, 150_000),
            entry("2020-08-05", "sell", 20_000, 100_000),
            entry("2020-08-06", "buy", 50_000, 225_000),
            entry("2020-08-07", "sell", 100_000, 150_000),
        ],
        "uk",
    )
    by_rule = pounds(gains.gains)
    assert by_rule["2020-07-31T10:00", "same day"][:2] == (10_000, 45_000)
    assert by_rule["2020-07-31T10:00", "30 days"][:2] == (20_000, 90_000)
    assert by_rule["2020-07-31T10:00", "same day"][2] + by_rule["2020-07-31T10:00", "30 days"][2] == 15_000
    assert by_rule["2020-08-05", "30 days"] == (20_000, 90_000, 10_000)
    # The pool: 100,000 tokens for £300,000, and what was left of 6 August, 10,000 for £45,000.
    assert by_rule["2020-08-07", "pool"][:2] == (100_000, 345_000 * 100_000 // 110_000)


@pytest.mark.parametrize(("zone", "rule"), [(ZoneInfo("Europe/London"), "same day"), (UTC, "pool")])
def test_days_begin_where_the_zone_says_in_summer_time_too(zone: ZoneInfo, rule: str) -> None:
    gains = gains_of(
        [
            entry("2020-01-01", "buy", 10, 10),
            entry("2020-06-23T00:10", "sell", 5, 10),
            entry("2020-06-22T23:30", "buy", 5, 20),  # 00:30 in London
        ],
        "uk",
        zone=zone,
    )
    assert [gain.rule for gain in gains.gains] == [rule]


def test_thirty_days_after_a_sale_count_and_the_next_day_does_not() -> None:
    buys = [entry("2020-01-01", "buy", 10, 10), entry("2020-02-01", "sell", 4, 10)]
    assert [gain.rule for gain in gains_of([*buys, entry("2020-03-02", "buy", 4, 20)], "uk").gains] == ["30 days"]
    assert [gain.rule for gain in gains_of([*buys, entry("2020-03-03", "buy", 4, 20)], "uk").gains] == ["pool"]


# --- what is not known ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", GAIN_METHODS)
def test_what_is_sold_beyond_what_was_bought_has_no_known_cost(method: str) -> None:
    gains = gains_of([entry("2020-01-01", "buy", 10, 100), entry("2020-03-01", "sell", 15, 300)], method)
    assert [(gain.quantity, gain.cost, gain.gain, gain.reason) for gain in gains.gains] == [
        (10, 100 * POUND, 100 * POUND, ""),
        (5, None, None, SHORT),
    ]
    assert gains.remaining == [RemainingLots("token", "", 0, 0, short=5)]
    pnl = document(gains, {"token": AssetFacts("tok", 0)}, {}, method=method, addresses=["a"])
    assert (pnl.closed_pnl, pnl.unknown) == (UNKNOWN, {SHORT: 1})
    assert [gain.gain for gain in pnl.gains] == ["100", UNKNOWN]


@pytest.mark.parametrize("method", GAIN_METHODS)
def test_what_came_at_an_unknown_cost_is_sold_at_an_unknown_gain_and_never_at_zero(method: str) -> None:
    gains = gains_of(
        [
            entry("2020-01-01", "received", 10, None, reason="it has no price"),
            entry("2020-03-01", "sell", 4, 40),
        ],
        method,
    )
    (gain,) = gains.gains
    assert (gain.proceeds, gain.cost, gain.gain, gain.reason) == (40 * POUND, None, None, "it has no price")
    pnl = document(gains, {"token": AssetFacts("tok", 0)}, {"token": Decimal(12)}, method=method, addresses=["a"])
    assert (pnl.total_cost_basis, pnl.open_pnl, pnl.closed_pnl) == (UNKNOWN, UNKNOWN, UNKNOWN)
    assert pnl.unknown == {"it has no price": 2}


@pytest.mark.parametrize("method", GAIN_METHODS)
def test_a_token_that_nobody_can_price_hides_no_sum_of_what_is_known(method: str) -> None:
    bought = [entry("2020-01-01", "buy", 10, 100), entry("2020-03-01", "sell", 4, 60)]
    facts = {"token": AssetFacts("tok", 0), "gift": AssetFacts("gft", 0)}

    def pnl_of(*entries: Entry) -> PnlDocument:
        gains = gains_of([*bought, *entries], method)
        return document(gains, facts, {"token": Decimal(12)}, method=method, addresses=["a"])

    priced_pnl = pnl_of()
    assert (priced_pnl.open_pnl, priced_pnl.closed_pnl, priced_pnl.total_cost_basis, priced_pnl.unknown) == (
        "12",
        "20",
        "60",
        {},
    )
    gift = entry("2020-02-01", "received", 5, None, asset="gift", reason="it has no price")
    pnl = pnl_of(gift, entry("2020-04-01", "sell", 1, 3, asset="gift"))
    assert (pnl.open_pnl, pnl.closed_pnl, pnl.total_cost_basis) == (UNKNOWN, UNKNOWN, UNKNOWN)
    assert pnl.unknown == {"it has no price": 2}
    assert pnl.known == priced_pnl.known
    assert (pnl.known.open_pnl, pnl.known.closed_pnl, pnl.known.total_cost_basis) == ("12", "20", "60")


@pytest.mark.parametrize("method", GAIN_METHODS)
def test_what_is_sold_at_an_unknown_price_leaves_the_cost_of_the_rest_known(method: str) -> None:
    gains = gains_of([entry("2020-01-01", "buy", 10, 100), entry("2020-03-01", "sell", 4)], method)
    (gain,) = gains.gains
    assert (gain.proceeds, gain.cost, gain.gain, gain.reason) == (None, 40 * POUND, None, NO_PRICE)
    assert gains.remaining == [RemainingLots("token", "", 6, 60 * POUND)]


def test_a_pool_has_a_known_cost_again_when_all_of_unknown_cost_has_left() -> None:
    gains = gains_of(
        [
            entry("2020-01-01", "received", 10),
            entry("2020-02-01", "sell", 10, 40),
            entry("2020-03-01", "buy", 10, 50),
            entry("2020-04-01", "sell", 5, 40),
        ],
        "average",
    )
    assert [gain.gain for gain in gains.gains] == [None, 15 * POUND]


def test_lots_of_unknown_cost_are_the_last_that_highest_and_lowest_in_choose() -> None:
    entries = [
        entry("2020-01-01", "received", 10),
        entry("2020-01-02", "buy", 10, 50),
        entry("2020-01-03", "buy", 10, 20),
        entry("2020-01-04", "buy", 10, 0),
        entry("2020-04-01", "sell", 35, 100),
    ]
    costs = {m: [gain.cost and gain.cost // POUND for gain in gains_of(entries, m).gains] for m in ("hifo", "lofo")}
    assert costs == {"hifo": [50, 20, 0, None], "lofo": [0, 20, 50, None]}


# --- transactions without a disposal ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", GAIN_METHODS)
def test_a_move_between_own_wallets_is_no_disposal_and_keeps_cost_and_time(method: str) -> None:
    entries = [
        entry("2020-01-01", "buy", 10, 100, wallet="a"),
        entry("2020-03-01", "move", 4, wallet="a", to="b"),
        entry("2020-05-01", "sell", 4, 60, wallet="b"),
    ]
    for per_wallet in (False, True) if method in PER_WALLET else (False,):
        (gain,) = gains_of(entries, method, per_wallet=per_wallet).gains
        assert (gain.gain, gain.wallet) == (20 * POUND, "b")
        if method not in ("average", *POOLED):
            assert gain.acquired_us == at_us("2020-01-01")


def test_by_wallet_a_sale_takes_lots_of_its_own_wallet_only() -> None:
    entries = [
        entry("2020-01-01", "buy", 10, 10, wallet="a"),
        entry("2020-02-01", "buy", 10, 50, wallet="b"),
        entry("2020-05-01", "sell", 10, 60, wallet="b"),
    ]
    assert [gain.gain for gain in gains_of(entries, "fifo").gains] == [50 * POUND]
    assert [gain.gain for gain in gains_of(entries, "fifo", per_wallet=True).gains] == [10 * POUND]


@pytest.mark.parametrize("method", GAIN_METHODS)
def test_deposits_are_no_disposals_and_what_comes_back_beyond_them_is_income(method: str) -> None:
    gains = gains_of(
        [
            entry("2020-01-01", "buy", 10, 100),
            entry("2020-02-01", "deposit", 8, 90),
            entry("2020-06-01", "withdraw", 10, 200),
        ],
        method,
    )
    assert [(gain.kind, gain.quantity, gain.gain) for gain in gains.gains] == [("income", 2, 40 * POUND)]
    assert gains.remaining == [RemainingLots("token", "", 12, 140 * POUND)]


@pytest.mark.parametrize("method", GAIN_METHODS)
def test_a_loan_is_no_gain_and_interest_is_a_fee(method: str) -> None:
    gains = gains_of([entry("2020-01-01", "borrow", 10, 100), entry("2020-06-01", "repay", 11, 220)], method)
    assert [(gain.kind, gain.quantity, gain.proceeds, gain.reason) for gain in gains.gains] == [
        ("fee", 1, 20 * POUND, SHORT)
    ]
    assert gains.remaining == [RemainingLots("token", "", 0, 0, short=1)]


# --- true of all entries ----------------------------------------------------------------------------------------------

KINDS: tuple[Kind, ...] = ("buy", "income", "received", "sell", "gift", "fee", "move")


@st.composite
def entries(draw: st.DrawFn, priced: bool = True) -> list[Entry]:
    result = []
    for number in range(draw(st.integers(1, 25))):
        value = draw(st.integers(0, 10**40) if priced else st.none() | st.integers(0, 10**40))
        time = START + timedelta(hours=draw(st.integers(0, 2_000)), minutes=number)
        result.append(
            Entry(
                int(time.timestamp()) * 1_000_000,
                draw(st.sampled_from(KINDS)),
                draw(st.sampled_from("xy")),
                draw(st.integers(1, 10**24)),
                value,
                draw(st.integers(0, 10**30)),
                draw(st.sampled_from("ab")),
                f"0x{number}",
                draw(st.sampled_from("ab")),
            )
        )
    return result


def flow(gains: Gains, given_entries: list[Entry]) -> tuple[int, int]:
    """Return gains less remaining costs, and proceeds of disposals less costs of acquisitions."""
    gained = sum(gain.gain if gain.gain is not None else gain.proceeds or 0 for gain in gains.gains)
    remaining_cost = sum(lots.cost or 0 for lots in gains.remaining)
    brought = sum((each.value or 0) - each.fee for each in given_entries if each.kind in ("sell", "gift", "fee"))
    spent = sum(
        (each.value or 0) + each.fee for each in given_entries if each.kind in ACQUIRED and each.kind != "income"
    )
    fees = sum(each.fee for each in given_entries if each.kind == "income")
    return gained - remaining_cost, brought - spent - fees


@pytest.mark.slow("other orders of the same lots", only=["lifo", "lofo"])
@pytest.mark.parametrize("method", GAIN_METHODS)
@few_examples
@given(given_entries=entries())
def test_gains_less_the_remaining_cost_are_money_out_less_money_in_to_the_last_unit(
    method: str, given_entries: list[Entry]
) -> None:
    """Units without a known cost, since more left than came, count with their whole proceeds."""
    gained, flowed = flow(gains_of(given_entries, method), given_entries)
    assert gained == flowed


@pytest.mark.slow("other orders of the same lots", only=["lifo", "lofo"])
@pytest.mark.parametrize("method", PER_WALLET)
@few_examples
@given(given_entries=entries())
def test_by_wallet_no_unit_of_money_or_of_an_asset_is_lost_either(method: str, given_entries: list[Entry]) -> None:
    gains = gains_of(given_entries, method, per_wallet=True)
    incoming = sum(each.quantity for each in given_entries if each.kind in ACQUIRED)
    outgoing = sum(each.quantity for each in given_entries if each.kind in ("sell", "gift", "fee"))
    assert sum(lots.quantity - lots.short for lots in gains.remaining) == incoming - outgoing
    costed = [gain for gain in gains.gains if gain.cost is not None]
    costs = sum(gain.cost or 0 for gain in costed) + sum(lots.cost or 0 for lots in gains.remaining)
    spent = sum((each.value or 0) + each.fee for each in given_entries if each.kind in ACQUIRED)
    # What a wallet moves on without having had it makes the cost unknown where it arrives.
    assert costs <= spent
    if not any(lots.short for lots in gains.remaining):
        assert costs == spent


@pytest.mark.slow("other orders of the same lots", only=["lifo", "hifo", "lofo"])
@pytest.mark.parametrize("method", GAIN_METHODS)
@few_examples
@given(given_entries=entries(priced=False), random=st.randoms(use_true_random=False))
def test_the_order_in_which_entries_are_given_changes_nothing(
    method: str, given_entries: list[Entry], random: st.DataObject
) -> None:
    shuffled = list(given_entries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # the strategy gives a random.Random
    assert gains_of(shuffled, method) == gains_of(given_entries, method)


@pytest.mark.slow("other orders of the same lots", only=["lifo", "hifo", "lofo"])
@pytest.mark.parametrize("method", GAIN_METHODS)
@few_examples
@given(given_entries=entries(priced=False))
def test_every_method_disposes_of_the_same_quantities_and_every_unknown_has_its_reason(
    method: str, given_entries: list[Entry]
) -> None:
    gains = gains_of(given_entries, method)
    disposed = sum(gain.quantity for gain in gains.gains if gain.kind != "income")
    assert disposed == sum(each.quantity for each in given_entries if each.kind in ("sell", "gift", "fee"))
    assert all((gain.gain is None) == bool(gain.reason) for gain in gains.gains)
    assert all((lots.cost is None) == bool(lots.reason) for lots in gains.remaining)


@few_examples
@given(given_entries=entries())
def test_lots_of_one_wallet_are_those_of_the_account_where_it_has_only_one(given_entries: list[Entry]) -> None:
    alone = [each._replace(wallet="a", to="a") for each in given_entries]
    account, wallet = gains_of(alone, "fifo"), gains_of(alone, "fifo", per_wallet=True)
    assert account.gains == wallet.gains
    assert [lots._replace(wallet="") for lots in wallet.remaining] == account.remaining


# --- the report -------------------------------------------------------------------------------------------------------


def test_what_is_held_would_gain_no_more_than_its_market_could_pay() -> None:
    gains = gains_of([entry("2020-01-01", "buy", 1000, 10)], "fifo")
    facts, prices = {"token": AssetFacts("tok", 0)}, {"token": Decimal(2)}
    for max_values, gain in (({}, "1990"), ({"token": Decimal(300)}, "290"), ({"token": Decimal(5000)}, "1990")):
        pnl = document(
            gains, facts, prices, method="fifo", addresses=["a"], current=CurrentHoldings(max_values=max_values)
        )
        assert (pnl.open_pnl, pnl.holdings[0].open_pnl) == (gain, gain)


def test_the_report_names_the_transaction_behind_each_lot_and_is_exact_in_a_file() -> None:
    gains = gains_of(
        [
            Entry(at_us("2020-01-01"), "buy", "token", 10**18, money(Decimal("0.1")), transaction="0xaa"),
            Entry(at_us("2020-02-01"), "buy", "token", 10**18, money(Decimal("0.3")), transaction="0xbb"),
            Entry(at_us("2020-03-01"), "sell", "token", 15 * 10**17, money(Decimal("1e-20")), transaction="0xcc"),
        ],
        "fifo",
    )
    facts: dict[str, AssetFacts] = {"token": AssetFacts("tok", 18, "ethereum", "0xee")}
    pnl = document(gains, facts, {"token": Decimal(2)}, method="fifo", addresses=["a"])
    rows = frame(pnl.gains)
    assert rows.columns == [*COLUMNS, *(f"{name}Decimal" for name in ("amount", "proceeds", "cost", "gain"))]
    assert rows.select("acquiredIn", "amount", "cost", "proceeds", "gain").rows() == [
        ("0xaa", "1", "0.1", "0.000000000000000000006666666667", "-0.099999999999999999993333333333"),
        ("0xbb", "0.5", "0.15", "0.000000000000000000003333333333", "-0.149999999999999999996666666667"),
    ]
    (holding,) = pnl.holdings
    assert (holding.amount, holding.total_cost_basis, holding.open_pnl) == ("0.5", "0.15", "0.85")
    assert pnl.total_cost_basis == "0.15"
