"""The parts of a change of value add up, and a fault of one asset changes no other asset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from chainfolio.amounts import EXACT, total
from chainfolio.portfolio.metrics.changes import (
    NOT_CONTINUED,
    ONE_DAY,
    OTHER_VALUE,
    OWN_VALUE,
    ChangesDocument,
    DayState,
    HoldingValue,
    ValueChange,
)
from chainfolio.portfolio.pnl.closing import HeldAsset, closings
from chainfolio.portfolio.pnl.debts import open_debts
from chainfolio.portfolio.pnl.entries import MONEY_DIGITS, UNASKED, Entry, Kind, sort_entries, without_loans
from chainfolio.portfolio.pnl.gains import NO_PRICE, Gains
from chainfolio.portfolio.pnl.methods import gains_of

USD = 10**MONEY_DIGITS
SINCE = 50
KINDS: tuple[Kind, ...] = ("buy", "received", "income", "sell", "sent", "fee", "borrow", "repay", "deposit")
SHARES = frozenset({"chain:s"})
APART = SHARES | {"chain:n:1"}  # shares and collectibles: their lots are not compared with what is held
PARTS = ("flows", "realised", "unrealised", "income", "debts", "rewards")
ENTRIES = st.lists(
    st.builds(
        lambda time, kind, asset, quantity, value, fee: Entry(
            time, kind, f"chain:{asset}", quantity, value * USD, fee * USD if kind in ("buy", "sell") else 0
        ),
        st.integers(0, 99),
        st.sampled_from(KINDS),
        st.sampled_from(["a", "b", "s", "n:1"]),
        st.integers(1, 20),
        st.integers(0, 100),
        st.integers(0, 3),
    ),
    max_size=25,
)


def state(
    entries: list[Entry], gains: Gains, price: int, wrong: int = 0, rewards: int = 0, *, has_shares: bool = False
) -> DayState:
    """Return a day on which the account holds its lots and owes its loans.

    `wrong` more units of the second asset are held. Shares and collectibles have a value with `has_shares`.
    """
    debts = open_debts(entries)
    holdings: dict[str, HoldingValue] = {}
    held_assets: dict[tuple[str, str], HeldAsset] = {}
    for lots in gains.remaining:
        extra = wrong if lots.asset == "chain:b" else 0
        raw, debt = lots.quantity - lots.short + extra, debts[lots.asset].quantity if lots.asset in debts else 0
        held_assets[lots.asset, ""] = HeldAsset(raw - lots.deposited, lots.deposited)
        if lots.asset in APART and not has_shares:
            holdings[lots.asset] = HoldingValue(owed=debt, is_unvalued=bool(raw or debt))
            continue
        holdings[lots.asset] = HoldingValue(Decimal(raw * price), debt, Decimal(debt * price), is_valued=True)
    parts = [part for each in holdings.values() for part in (each.value, each.owed_value.copy_negate())]
    checks = closings(gains.remaining, held_assets, lambda asset: asset not in SHARES)
    return DayState(
        total([*parts, Decimal(rewards)]),
        holdings,
        Decimal(rewards),
        {lots.asset: lots for lots in gains.remaining},
        {asset: check for (asset, _), check in checks.items()},
        debts,
    )


def change(
    entries: list[Entry], prices: tuple[int, int], wrong: int, has_shares: tuple[bool, bool] = (False, False)
) -> tuple[ChangesDocument, DayState, DayState]:
    """The statement of entries since `SINCE`, with the states of both days."""
    before = [each for each in entries if each.time_us < SINCE]
    first = state(before, gains_of(before, "fifo"), prices[0], rewards=3, has_shares=has_shares[0])
    gains = gains_of(entries, "fifo")
    last = state(entries, gains, prices[1], wrong, rewards=5, has_shares=has_shares[1])
    period_entries = [
        each for each in without_loans(sort_entries(entries), {}, per_wallet=False) if each.time_us >= SINCE
    ]
    disposals = [each for each in gains.gains if each.time_us >= SINCE]
    return ValueChange(first, last, period_entries, disposals, SHARES).document("fifo"), first, last


@given(
    ENTRIES,
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.integers(-3, 3),
    st.tuples(st.booleans(), st.booleans()),
)
def test_parts_are_the_change_and_only_faulty_assets_have_rows(
    entries: list[Entry], prices: tuple[int, int], wrong: int, has_shares: tuple[bool, bool]
) -> None:
    document, first, last = change(entries, prices, wrong, has_shares)
    parts = [Decimal(getattr(document, name)) for name in PARTS]
    rows = [Decimal(row.value) for row in document.unexplained]
    assert total([*parts, *rows, Decimal(document.fees).copy_negate()]) == EXACT.subtract(last.value, first.value)
    faulty = {row.contract for row in document.unexplained if not row.reason.startswith("more left")}
    faulty -= {row.contract for row in document.unexplained if "owed" in row.reason}
    apart = {asset for asset in APART if first.holding(asset).is_valued or last.holding(asset).is_valued}
    wrong_assets = {"chain:b"} if wrong and "chain:b" in last.lots else set[str]()
    expected = {asset.removeprefix("chain:") for asset in apart | wrong_assets}
    assert faulty <= expected <= {row.contract for row in document.unexplained}
    assert OTHER_VALUE not in {row.reason for row in document.unexplained}


@given(ENTRIES, st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_a_fault_of_one_asset_changes_no_part_of_another(entries: list[Entry], prices: tuple[int, int]) -> None:
    alone = [each for each in entries if each.asset == "chain:a"]
    rows_of_both = change([*entries, Entry(0, "buy", "chain:b", 1, 0)], prices, 2)[0].unexplained
    rows_alone = change(alone, prices, 0)[0].unexplained
    assert [each for each in rows_of_both if each.contract == "a"] == list(rows_alone)
    assert [each.reason for each in rows_of_both if each.contract == "b"]


@pytest.mark.parametrize("arrives", [True, False])
def test_lots_that_cross_chains_are_a_fault_only_if_their_cost_does_not_arrive(arrives: bool) -> None:
    bought = [Entry(0, "buy", f"chain:{symbol}", 10, 50 * USD) for symbol in ("a", "b", "c")]
    crossed = [Entry(60, "depart", "chain:a", 4, to="lot"), Entry(61, "arrive", "chain:b", 4, to="lot")]
    document, _, last = change([*bought, *crossed], (5, 7), 0)
    assert not document.unexplained
    assert (document.realised, document.unrealised) == ("0", "60")
    assert last.lots["chain:b"].cost == 70 * USD
    if not arrives:  # its arrival is not among the entries of the period
        first = change(bought, (5, 7), 0)[1]
        document = ValueChange(first, last, crossed[:1], ()).document("fifo")
        reasons = {row.contract: (row.raw, row.reason) for row in document.unexplained}
        assert reasons == {"a": ("0", NOT_CONTINUED), "b": ("0", NOT_CONTINUED)}


def row_of(
    asset: str, first: DayState, last: DayState, entries: Sequence[Entry] = (), **more: Any
) -> tuple[str, str, str, str, int | None, str, str] | None:
    """The row of an asset among the unexplained changes, as a tuple; None if it has none."""
    document = ValueChange(first, last, entries, (), SHARES, {"chain:b": 7}, **more).document("fifo")
    rows = {f"{row.chain}:{row.contract}": row for row in document.unexplained}
    return astuple(rows[asset]) if asset in rows else None


def test_an_unexplained_change_names_asset_block_and_difference() -> None:
    entries = [Entry(0, "buy", "chain:b", 10, 50 * USD)]
    gains = gains_of(entries, "fifo")
    first, last = state(entries, gains, 5), state(entries, gains, 7, wrong=3)
    for day in (first, last):
        day.holdings["chain:b"].symbol, day.holdings["chain:b"].decimals = "B", 6
    row = row_of("chain:b", first, last)
    assert row is not None
    assert row[:6] == ("chain", "b", "B", "3", 7, "41")  # 13 units at 7, less 10 units at 5
    assert row[6] == "its wallet holds 0.000013 of it, and 0.00001 by its transactions"
    row = row_of("chain:b", last, first)
    assert row is not None
    assert (row[3], row[5]) == ("3", "-41")


@pytest.mark.parametrize("is_first", [True, False])
def test_a_day_without_a_value_of_an_asset_leaves_its_change_unexplained(is_first: bool) -> None:
    entries = [Entry(0, "buy", "chain:b", 10, 50 * USD)]
    gains = gains_of(entries, "fifo")
    valued, unvalued = state(entries, gains, 5), state(entries, gains, 0)
    unvalued.holdings["chain:b"].is_unvalued, unvalued.holdings["chain:b"].is_valued = True, False
    days = (unvalued, valued) if is_first else (valued, unvalued)
    row = row_of("chain:b", *days)
    assert row is not None
    assert (row[3], row[4], row[5], row[6]) == ("0", 7, "50" if is_first else "-50", ONE_DAY)
    assert row_of("chain:b", unvalued, unvalued) is None


@pytest.mark.parametrize(
    ("entry", "reason", "value"),
    [
        (Entry(60, "unasked", "chain:b", 1), UNASKED, "20"),
        (Entry(60, "taken", "chain:b", 1), UNASKED, "20"),
        (Entry(60, "buy", "chain:b", 1, None), NO_PRICE, "20"),
        (Entry(60, "sell", "chain:b", 1, None, reason="no feed"), "no feed", "20"),
        (Entry(60, "income", "chain:b", 1, 5 * USD), NOT_CONTINUED, "15"),
        (Entry(60, "received", "chain:b", 1, 5 * USD, USD), NOT_CONTINUED, "14"),
        (Entry(60, "sent", "chain:b", 1, None, USD), NO_PRICE, "20"),
    ],
    ids=["unasked", "taken", "no price", "reason of the entry", "income", "received", "sent"],
)
def test_movements_without_a_known_gain_leave_what_they_do_not_explain(entry: Entry, reason: str, value: str) -> None:
    entries = [Entry(0, "buy", "chain:b", 10, 50 * USD)]
    gains = gains_of(entries, "fifo")
    row = row_of("chain:b", state(entries, gains, 5), state(entries, gains, 7), [entry])
    assert row is not None
    assert (row[3], row[5], row[6]) == ("0", value, reason)


def test_an_asset_without_a_value_has_a_row_only_if_it_is_trusted() -> None:
    empty_state = state([], Gains([], []), 5)
    entry = Entry(60, "unasked", "chain:b", 1)
    assert row_of("chain:b", empty_state, empty_state, [entry], is_trusted=lambda asset: asset != "chain:b") is None
    row = row_of("chain:b", empty_state, empty_state, [entry])
    assert row is not None
    assert (row[5], row[6]) == ("0", UNASKED)


def test_a_share_with_a_value_of_its_own_is_not_explained() -> None:
    entries = [Entry(0, "buy", "chain:s", 10, 50 * USD)]
    gains = gains_of(entries, "fifo")
    first, last = (state(entries, gains, price, has_shares=True) for price in (5, 7))
    row = row_of("chain:s", first, last)
    assert row is not None
    assert (row[2], row[3], row[4], row[5], row[6]) == ("", "0", None, "20", OWN_VALUE)


def test_a_value_that_no_asset_has_is_a_row_without_an_asset() -> None:
    empty_state = state([], Gains([], []), 5)
    document = ValueChange(empty_state, replace(empty_state, value=Decimal(3), rewards=Decimal(1)), (), ()).document(
        "lifo"
    )
    assert [astuple(row) for row in document.unexplained] == [("", "", "", "0", None, "2", OTHER_VALUE)]
    assert (document.method, document.rewards, document.flows) == ("lifo", "1", "0")
