"""Both sides of a trade have one value: that of the side whose price is stronger."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.contracts import TRADE_VALUES
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.trade_value import FEED_STRENGTH, PriceKind, Side, Strength, Strengths, equalise, net_off
from tests.portfolio.test_pnl_records import ME, MINE, USD, asset, brief, record

STABLE: Final = Strength(PriceKind.STABLE)
THIN, DEEP = (Strength(PriceKind.MARKET, Decimal(depth)) for depth in (10_000, 500_000))


def strengths(**by_contract: Strength) -> Strengths:
    return {("chain", 1, contract): strength for contract, strength in by_contract.items()}


def values(bought: str, sold: str, by_contract: Mapping[str, Strength], rule: str = "market") -> set[int | None]:
    """The values of both sides of a swap of `b` for `a`, in USD."""
    swap = record("SWAP", [asset("a", "5", bought)], [asset("b", "7", sold)])
    treatment = Treatment(trade_value=rule, strengths=strengths(**by_contract))
    entries = entries_of([swap], (ME, MINE), treatment).entries
    return {value for kind, _, _, value in brief(entries) if kind in ("buy", "sell")}


@pytest.mark.parametrize(
    ("by_contract", "expected"),
    [
        pytest.param({}, 50, id="two-feeds"),
        pytest.param({"b": STABLE}, 49, id="sold-stable"),
        pytest.param({"a": STABLE}, 50, id="bought-stable"),
        pytest.param({"a": STABLE, "b": STABLE}, 50, id="two-stable"),
        pytest.param({"a": THIN}, 49, id="feed-sold"),
        pytest.param({"b": DEEP}, 50, id="feed-bought"),
        pytest.param({"a": THIN, "b": DEEP}, 49, id="deeper-sold"),
        pytest.param({"a": DEEP, "b": THIN}, 50, id="deeper-bought"),
        pytest.param({"a": DEEP, "b": STABLE}, 49, id="stable-before-deep"),
    ],
)
def test_the_stronger_price_gives_both_sides_their_value(by_contract: dict[str, Strength], expected: int) -> None:
    assert values("50", "49", by_contract) == {expected}


@pytest.mark.parametrize(("rule", "expected"), [("received", 50), ("given", 49)])
def test_a_rule_can_name_the_side_whatever_its_price(rule: str, expected: int) -> None:
    assert values("50", "49", {"a": THIN, "b": THIN}, rule) == {expected}
    assert values("50", "49", {"a": STABLE, "b": THIN}, rule) == {expected}
    assert values("50", "49", {"a": THIN, "b": STABLE}, rule) == {expected}


def test_one_side_without_a_price_takes_the_value_of_the_other_by_every_rule() -> None:
    for rule in TRADE_VALUES:
        assert values("N/A", "49", {}, rule) == {49}
        assert values("50", "N/A", {}, rule) == {50}
        assert values("N/A", "N/A", {}, rule) == {None}


def test_a_sale_for_a_stable_currency_gains_what_was_paid_less_its_cost() -> None:
    """Sell 0.1 ETH of cost 215.15 for 200.18 USDC: the loss is in ETH, and the USDC costs its value."""
    records = [
        record("TRANSFERIN", [asset("eth", "10", "215.15")], sender="other"),
        record("SWAP", [asset("usdc", "20018", "200.18")], [asset("eth", "10", "215.15")], hash="0x2"),
        record("SWAP", [asset("eth", "10", "199")], [asset("usdc", "20018", "200.18")], hash="0x3"),
    ]
    treatment = Treatment(strengths=strengths(usdc=STABLE))
    gains = gains_of(entries_of(records, (ME, MINE), treatment).entries, "fifo")
    assert [(gain.asset, gain.gain) for gain in gains.gains] == [
        ("chain:eth", -1497 * USD // 100),
        ("chain:usdc", 0),
    ]
    (eth,) = (lots for lots in gains.remaining if lots.asset == "chain:eth")
    assert eth.cost == 20018 * USD // 100


def test_the_fee_is_apart_from_the_value_of_a_trade() -> None:
    swap = record("SWAP", [asset("a", "5", "50")], [asset("b", "7", "49")], ("2", "3"))
    entries = entries_of([swap], (ME, MINE), Treatment(strengths=strengths(b=STABLE))).entries
    assert {(each.kind, each.value, each.fee) for each in entries} == {
        ("buy", 49 * USD, 3 * USD),
        ("sell", 49 * USD, 0),
        ("fee", 3 * USD, 0),
    }


def test_the_weakest_price_of_a_side_counts_for_the_side() -> None:
    swap = record("SWAP", [asset("a", "5", "30"), asset("c", "1", "20")], [asset("b", "7", "40")])
    treatment = Treatment(strengths=strengths(a=STABLE, c=THIN, b=DEEP))
    assert brief(entries_of([swap], (ME, MINE), treatment).entries) == {
        ("buy", "a", 5, 24),
        ("buy", "c", 1, 16),
        ("sell", "b", 7, 40),
    }


sides = st.lists(
    st.builds(
        Side,
        st.just("asset"),
        st.just(1),
        st.one_of(st.none(), st.integers(0, 10**40)),
        st.sampled_from([FEED_STRENGTH, STABLE, THIN, DEEP]),
    ),
    max_size=4,
)


@given(sides, sides, st.sampled_from(TRADE_VALUES))
def test_both_sides_are_equal_to_the_last_unit_or_one_has_an_unknown_value(
    incoming: list[Side], outgoing: list[Side], rule: str
) -> None:
    before = {id(side): side.value for side in (*incoming, *outgoing)}
    equalise(incoming, outgoing, rule)
    after = [[side.value for side in each] for each in (incoming, outgoing)]
    if not incoming or not outgoing:
        assert {id(side): side.value for side in (*incoming, *outgoing)} == before
        return
    known_values = [[value for value in each if value is not None] for each in after]
    if known_values == after:
        assert sum(known_values[0]) == sum(known_values[1])
    assert all(value >= 0 for each in known_values for value in each)
    unknown_before = sum(value is None for value in before.values())
    assert unknown_before or known_values == after or any(sum(value or 0 for value in each) == 0 for each in after)


@pytest.mark.parametrize(("value", "part", "remainder"), [(100, 34, 66), (None, None, None)])
def test_a_part_of_a_side_and_the_rest_keep_all_its_value_and_its_price(
    value: int | None, part: int | None, remainder: int | None
) -> None:
    side = Side("a", 3, value, DEEP)
    assert side.part(1) == Side("a", 1, part, DEEP)
    assert side.without(1) == Side("a", 2, remainder, DEEP)


@pytest.mark.parametrize(
    ("gain", "loss", "incoming", "outgoing"),
    [
        ((5, 50), (2, 30), {"a": Side("a", 3, 30, DEEP)}, {}),
        ((2, 30), (5, 50), {}, {"a": Side("a", 3, 30, THIN)}),
        ((5, 50), (5, 30), {}, {}),
        ((3, None), (2, 30), {"a": Side("a", 1, None, DEEP)}, {}),
        ((3, 30), (2, None), {"a": Side("a", 1, 10, DEEP)}, {}),
    ],
    ids=["gain", "loss", "equal", "no-value", "no-value-of-the-smaller"],
)
def test_of_an_asset_that_came_and_left_the_larger_movement_stays_with_its_price(
    gain: tuple[int, int | None],
    loss: tuple[int, int | None],
    incoming: dict[str, Side],
    outgoing: dict[str, Side],
) -> None:
    gain_sides, loss_sides = {"a": Side("a", *gain, DEEP)}, {"a": Side("a", *loss, THIN)}
    net_off(gain_sides, loss_sides, "a")
    assert (gain_sides, loss_sides) == (incoming, outgoing)


@pytest.mark.parametrize(
    ("values_in", "values_out", "expected"),
    [
        ([None, 30], [100], [70, 30, 100]),
        ([100], [None, 30], [100, 70, 30]),
        ([None, 30], [30], [0, 30, 30]),
        ([None, 30], [29], [None, 30, 29]),
        ([None, None], [100], [None, None, 100]),
        ([0, 0], [None], [0, 0, 0]),
        ([100], [0, 0], [100, None, None]),
        ([10], [1, 1, 1], [10, 4, 3, 3]),
    ],
    ids=["in", "out", "nothing-left", "negative", "two-unknown", "zero", "nothing-to-share-by", "thirds"],
)
def test_the_only_unknown_value_is_the_difference_and_never_negative(
    values_in: list[int | None], values_out: list[int | None], expected: list[int | None]
) -> None:
    incoming, outgoing = ([Side("a", 1, value) for value in values] for values in (values_in, values_out))
    equalise(incoming, outgoing, "received")
    assert [side.value for side in (*incoming, *outgoing)] == expected
