"""Metrics against figures worked out by hand, and what none of them can say."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from chainfolio.amounts import ZERO, value_of
from chainfolio.portfolio.document import (
    UNKNOWN,
    AssetDocument,
    Portfolio,
    PositionDocument,
    PositionsDocument,
    ProtocolChainDocument,
    ProtocolDocument,
    SpamDocument,
)
from chainfolio.portfolio.metrics.drawdown import Drawdown, drawdown
from chainfolio.portfolio.metrics.exposure import Exposure, exposure, largest_first
from chainfolio.portfolio.metrics.money_weighted import YEAR_US, money_weighted, yearly
from chainfolio.portfolio.metrics.report import TOO_FEW, PerformanceData, document
from chainfolio.portfolio.metrics.time_weighted import growths
from chainfolio.portfolio.metrics.value_series import Flow, Point, value_series

DAY_US = 86_400_000_000


def series(*points: str | tuple[str | None, str] | None, step_us: int = DAY_US) -> list[Point]:
    """A point a day: its value, or value and the flow right before it; None is not known."""
    pairs = [point if isinstance(point, tuple) else (point, "0") for point in points]
    return [
        Point(
            number * step_us,
            None if value is None else Decimal(value),
            (Flow(number * step_us, Decimal(flow)),) if flow != "0" else (),
        )
        for number, (value, flow) in enumerate(pairs)
    ]


def returned(points: list[Point]) -> Fraction | None:
    """The return over a series, 1/10 for ten per cent."""
    growth = growths(points)[1:]
    return growth[-1] - 1 if growth and growth[-1] is not None else None


def test_flows_belong_to_the_value_after_them_and_gaps_stay_gaps() -> None:
    points = value_series(
        {30: Decimal(9), 10: Decimal(5), 20: None},
        [Flow(25, Decimal(2)), Flow(11, Decimal(1)), Flow(20, Decimal("-3")), Flow(31, Decimal(7))],
    )
    assert [(point.time_us, point.value, point.flow) for point in points] == [
        (10, Decimal(5), Decimal(0)),
        (20, None, Decimal(1)),
        (30, Decimal(9), Decimal(-1)),
    ]


def test_the_time_weighted_return_leaves_out_what_was_paid_in_and_taken_out() -> None:
    # 100 → 110 (+10 %); 90 are paid in: 200 → 180 (−10 %); 80 are taken out: 100 → 150 (+50 %)
    rate = returned(series("100", ("200", "90"), ("100", "-80"), "150"))
    assert rate == Fraction(110, 100) * Fraction(180, 200) * Fraction(150, 100) - 1


def test_what_is_paid_in_early_in_a_day_earns_from_then_on_and_is_no_gain_itself() -> None:
    # 100 lie there; at 06:00 300 come. At the end of the day it is 410: 10 were earned by 100 + 300 * 18/24.
    last_point = Point(DAY_US, Decimal(410), (Flow(DAY_US // 4, Decimal(300)),))
    assert returned([Point(0, Decimal(100)), last_point]) == Fraction(10, 325)
    # The published example of the method: 1,000 at the start, 300 halfway through, 1,500 at the end: 200 / 1,150.
    halfway = Point(2 * DAY_US, Decimal(1500), (Flow(DAY_US, Decimal(300)),))
    assert returned([Point(0, Decimal(1000)), halfway]) == Fraction(200, 1150)


def test_a_wallet_that_begins_empty_has_a_return_from_its_first_deposit_on() -> None:
    deposit = Point(2 * DAY_US, Decimal(110), (Flow(DAY_US, Decimal(100)),))
    empty = [Point(0, Decimal(0)), Point(DAY_US, Decimal(0)), deposit]
    assert returned(empty) == Fraction(1, 10)  # it came right as the day began, and was there for all of it
    late = Point(2 * DAY_US, Decimal(110), (Flow(DAY_US * 3 // 2, Decimal(100)),))
    assert growths([*empty[:2], late]) == [1, 1, 1 + Fraction(10, 50)]


@pytest.mark.parametrize(
    "points",
    [["1"], [], ["1", None, "2"], ["0", "1"], ["-1", "1"], [None, "1"], ["1", None]],
)
def test_what_begins_with_nothing_with_debt_or_unknown_has_no_return_and_no_drawdown(points: list[str | None]) -> None:
    assert returned(series(*points)) is None
    assert drawdown(series(*points)) is None


def test_the_money_weighted_return_is_the_rate_at_which_payments_grow_to_the_end() -> None:
    # 100 for two years and 100 for one, at 10 % a year: 121 + 110
    two_years = series("100", ("210", "100"), "231", step_us=YEAR_US)
    rate = money_weighted(two_years)
    assert rate == Decimal("0.210000000000")
    assert yearly(rate, two_years) == Decimal("0.100000000000")
    assert money_weighted(series("100", "50", step_us=YEAR_US)) == Decimal("-0.500000000000")


def test_the_money_weighted_return_agrees_with_the_published_example_of_xirr() -> None:
    # The example of the spreadsheets' XIRR: −10,000 on 2008-01-01, then 2,750, 4,250, 3,250 and 2,750: 37.34 % a year.
    days, payments = [0, 60, 303, 411, 456], [Decimal(value) for value in ("-10000", "2750", "4250", "3250", "2750")]
    flows = tuple(
        Flow(day * DAY_US, value.copy_negate()) for day, value in zip(days[1:-1], payments[1:-1], strict=True)
    )
    published = [Point(0, -payments[0]), Point(days[-1] * DAY_US, payments[-1], flows)]
    total_return = money_weighted(published)
    assert total_return is not None
    rate = yearly(total_return, published)
    assert rate is not None
    assert abs(rate - Decimal("0.373362535")) < Decimal("5e-9")


def test_the_last_digit_of_large_payments_says_whether_more_than_one_rate_may_fit() -> None:
    large = "1" + "0" * 30
    # What was paid in is never all taken out, but for the last digit: rounded to fewer digits it seems to be, and back.
    points = series(large, ("0", "0.00001"), ("0", f"-{large}.000005"), ("0", "0.00001"), f"1{large}", step_us=YEAR_US)
    assert money_weighted(points) is not None


def test_a_span_shorter_than_a_year_has_no_rate_a_year() -> None:
    short = series("100", "110", step_us=YEAR_US // 2)
    assert money_weighted(short) == Decimal("0.100000000000")
    assert yearly(Decimal("0.1"), short) is None
    assert yearly(Fraction(21, 100), series("100", "121", step_us=2 * YEAR_US)) == Decimal("0.100000000000")


@pytest.mark.parametrize(
    "points", [["1"], ["0", "5"], [None, "1"], ["1", None], ["100", ("200", "-400"), ("0", "900")]]
)
def test_without_a_rate_or_with_more_than_one_there_is_no_money_weighted_return(
    points: list[str | tuple[str, str] | None],
) -> None:
    assert money_weighted(series(*points, step_us=YEAR_US)) is None


def test_the_drawdown_is_the_largest_fall_from_a_peak_and_what_is_taken_out_is_no_fall() -> None:
    assert drawdown(series("100", "120", "90", "130", "65", "200")) == Drawdown(Fraction(1, 2), 3 * DAY_US, 4 * DAY_US)
    assert drawdown(series("100", ("40", "-60"))) == Drawdown(Fraction(0), 0, 0)


amounts = st.integers(1, 10**30).map(lambda number: Decimal(number).scaleb(-18))


@settings(max_examples=50, deadline=None)
@given(st.lists(amounts, min_size=2, max_size=12), st.integers(1, 1000))
def test_returns_without_flows_depend_on_the_ends_only_and_on_no_currency(values: list[Decimal], rate: int) -> None:
    plain = [Point(at * DAY_US, value) for at, value in enumerate(values)]
    total_return = returned(plain)
    assert total_return == Fraction(values[-1]) / Fraction(values[0]) - 1
    assert (
        returned([point._replace(value=value_of(point.value or ZERO, Decimal(rate))) for point in plain])
        == total_return
    )
    fallen = drawdown(plain)
    assert fallen is not None
    assert 0 <= fallen.part < 1
    if all(before <= after for before, after in pairwise(values)):
        assert fallen.part == 0


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(-50, 400), st.integers(1, 999)), min_size=1, max_size=8),
    st.integers(1, 1000),
)
def test_no_payment_moves_the_time_weighted_return_where_values_are_known_around_it(
    days: list[tuple[int, int, int]], start: int
) -> None:
    """One unit of the asset costs 100, then what each day says; a payment is made as a day ends."""
    plain, with_payments = [Point(0, Decimal(100))], [Point(0, Decimal(100 * start))]
    units = Fraction(start)
    for at, (price, bought, _) in enumerate(days, 1):
        added = max(Fraction(bought), -units + Fraction(1, 8))
        units += added
        value, flow = (Decimal(part.numerator) / part.denominator for part in (units * price, added * price))
        plain.append(Point(at * DAY_US, Decimal(price)))
        with_payments.append(Point(at * DAY_US, value, (Flow(at * DAY_US, flow),)))
    assert returned(with_payments) == returned(plain)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, DAY_US), st.integers(1, 10**9)), max_size=6), st.integers(1, 10**9))
def test_what_is_paid_in_at_an_unchanged_price_is_never_a_gain(flows: list[tuple[int, int]], start: int) -> None:
    payments = tuple(Flow(at, Decimal(value)) for at, value in sorted(flows))
    end = Point(DAY_US, Decimal(start + sum(flow.value for flow in payments)), payments)
    assert returned([Point(0, Decimal(start)), end]) == 0


def asset(contract: str, value: str, spam: SpamDocument | UnsetType = UNSET) -> AssetDocument:
    return AssetDocument("", "", contract, "a", f"a:{contract}", "1", value, value, "0", spam=spam)


def test_exposure_takes_off_what_is_owed_and_leaves_out_what_has_no_price_or_is_spam() -> None:
    spam = asset("bait", "999", spam=SpamDocument(99, ("x",)))
    wallet = PositionsDocument("wallet", "10", assets=(asset("eth", "10.5"), asset("odd", UNKNOWN), spam))
    loan = PositionDocument("loan", "7", supply_assets=(asset("eth", "20"),), borrow_assets=(asset("dai", "13.1"),))
    lending = PositionsDocument("Lending", "7", protocol_positions=(loan,))

    def protocol(key: str, positions: PositionsDocument) -> ProtocolDocument:
        chain = ProtocolChainDocument("A", "a", "0", {positions.name: positions})
        return ProtocolDocument(key, key, "0", {"a": chain})

    portfolio = Portfolio(
        address="x",
        networth="17.4",
        last_updated="0",
        chains={},
        completeness="complete",
        issues=(),
        asset_by_protocols={"wallet": protocol("wallet", wallet), "aave3": protocol("aave3", lending)},
        unpriced_assets=1,
        price_adapters=(),
        conversion_rates={},
    )
    result = exposure([portfolio])
    assert result.chains == {"a": Decimal("17.4")}
    assert result.protocols == {"aave3": Decimal("6.9"), "wallet": Decimal("10.5")}
    assert result.assets == {"a:dai": Decimal("-13.1"), "a:eth": Decimal("30.5")}
    assert result.unpriced == {"a:odd"}
    assert [key for key, _ in largest_first(result.assets)] == ["a:eth", "a:dai"]
    assert exposure([portfolio, portfolio]).chains == {"a": Decimal("34.8")}


def test_a_remark_is_a_reason_if_too_few_days_are_known_and_is_not_repeated() -> None:
    def performance(*values: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        no_exposure = Exposure({}, {}, {}, frozenset(), {})
        result = document(
            PerformanceData((), "USD", series(*values), (), {}, no_exposure, remarks=("a day was left out",))
        )
        return result.reasons, result.remarks

    assert performance("1") == ((TOO_FEW, "a day was left out"), ())
    reasons, remarks = performance("1", "2")
    assert TOO_FEW not in reasons
    assert remarks == ("a day was left out",)
