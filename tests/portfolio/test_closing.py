"""The closing identity: opening plus in less out equals the holding of each asset, for any amounts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.portfolio.pnl.closing import (
    ELSEWHERE,
    NO_LOTS,
    UNCLOSED,
    UNSEEN,
    ClosingCheck,
    CurrentHoldings,
    HeldAsset,
    Key,
    closings,
    protocols_fault,
)
from chainfolio.portfolio.pnl.entries import MONEY_DIGITS, AssetFacts, Entry, Kind, money
from chainfolio.portfolio.pnl.gains import RemainingLots
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.report import PnlDocument, document

USD = 10**MONEY_DIGITS
ASSETS = ("chain:a", "chain:b")
FACTS = {asset: AssetFacts(asset[-1], 0, "chain", asset[-1]) for asset in ASSETS}
PRICES = {asset: Decimal(3) for asset in ASSETS}


def entry(kind: Kind, quantity: int, asset: str = "chain:a", value: int | None = 0, number: int = 0) -> Entry:
    return Entry(number, kind, asset, quantity, None if value is None else value * USD, transaction=f"0x{number}")


def report(entries: list[Entry], holdings: dict[Key, HeldAsset], **current: Any) -> PnlDocument:
    gains = gains_of(entries, "fifo")
    checked = closings(gains.remaining, holdings, lambda asset: True)
    current_holdings = CurrentHoldings(closings=checked, first_blocks={"chain:a": 7}, **current)
    return document(gains, FACTS, PRICES, method="fifo", addresses=["me"], current=current_holdings)


def test_an_asset_that_closes_is_worth_its_cost_and_its_gain() -> None:
    entries = [entry("buy", 10, value=20), entry("sell", 4, value=16, number=1)]
    pnl = report(entries, {("chain:a", ""): HeldAsset(6)})
    assert pnl.unexplained == ()
    assert (pnl.value, pnl.total_cost_basis, pnl.open_pnl, pnl.closed_pnl) == ("18", "12", "6", "8")
    (holding,) = pnl.holdings
    assert (holding.held, holding.value, holding.reason) == ("6", "18", "")


@pytest.mark.parametrize("balance", [5, 7])
def test_an_asset_that_does_not_close_has_a_row_and_no_gain_and_others_keep_theirs(balance: int) -> None:
    entries = [
        entry("buy", 10, value=20),
        entry("sell", 4, value=16, number=1),
        entry("buy", 2, "chain:b", 5),
        entry("sell", 1, "chain:b", 4, 2),
    ]
    pnl = report(entries, {("chain:a", ""): HeldAsset(balance), ("chain:b", ""): HeldAsset(1)})
    (row,) = pnl.unexplained
    assert (row.contract, row.place, row.raw, row.first_block) == ("a", "wallet", str(balance - 6), 7)
    assert row.reason == f"its wallet holds {balance} of it, and 6 by its transactions"
    a, b = pnl.holdings
    assert (a.reason, a.total_cost_basis, a.open_pnl, a.closed_pnl, a.value) == (UNCLOSED, "N/A", "N/A", "N/A", "N/A")
    assert (b.reason, b.total_cost_basis, b.open_pnl, b.closed_pnl, b.value) == ("", "2.5", "0.5", "1.5", "3")
    assert (pnl.closed_pnl, pnl.open_pnl, pnl.value) == ("N/A", "N/A", "N/A")
    assert (pnl.known.closed_pnl, pnl.known.open_pnl) == ("1.5", "0.5")
    assert {gain.contract: gain.gain for gain in pnl.gains} == {"a": "N/A", "b": "1.5"}
    assert pnl.unknown == {UNCLOSED: 2}


def test_an_untrusted_asset_that_does_not_close_has_a_row_and_hides_no_sum() -> None:
    entries = [entry("buy", 10, value=20), entry("buy", 2, "chain:b", 5), entry("sell", 1, "chain:b", 4, 2)]
    holdings = {("chain:a", ""): HeldAsset(99), ("chain:b", ""): HeldAsset(1)}
    pnl = report(entries, holdings, is_trusted=lambda asset: asset == "chain:b")
    assert [row.raw for row in pnl.unexplained] == ["89"]
    assert (pnl.closed_pnl, pnl.open_pnl, pnl.total_cost_basis, pnl.value) == ("1.5", "0.5", "2.5", "3")


def test_what_is_held_and_never_moved_is_shown_with_its_amount() -> None:
    pnl = report([], {("chain:a", ""): HeldAsset(8, 1)})
    (holding,) = pnl.holdings
    assert (holding.amount, holding.held, holding.reason, holding.value) == ("0", "9", NO_LOTS, "N/A")
    assert [(row.place, row.raw, row.reason) for row in pnl.unexplained] == [
        ("wallet", "8", NO_LOTS),
        ("protocols", "1", UNSEEN),
    ]


def test_what_left_without_an_origin_was_an_opening_that_no_transaction_explains() -> None:
    pnl = report([entry("sent", 3, value=9)], {("chain:a", ""): HeldAsset(7)})
    (row,) = pnl.unexplained
    assert row.raw == "10"
    assert row.reason == "its wallet holds 7 of it, and -3 by its transactions"


def test_a_position_that_earned_closes_and_what_it_earned_is_open_gain() -> None:
    entries = [entry("buy", 10, value=20), entry("deposit", 6, number=1)]
    pnl = report(entries, {("chain:a", ""): HeldAsset(4, 8)})
    assert pnl.unexplained == ()
    assert (pnl.value, pnl.total_cost_basis, pnl.open_pnl) == ("36", "20", "16")
    assert pnl.holdings[0].held == "12"


@pytest.mark.parametrize(
    ("in_protocols", "deposited", "reason"),
    [
        (0, 0, ""),
        (5, 5, ""),
        (6, 5, ""),
        (3, 5, ""),
        (2, 5, ELSEWHERE),
        (0, 5, ELSEWHERE),
        (5, 0, UNSEEN),
        (10**18 - 10**9, 10**18, ""),
        (10**18 - 10**9 - 1, 10**18, ELSEWHERE),
    ],
)
def test_positions_hold_at_least_what_was_deposited_but_for_rounding(
    in_protocols: int, deposited: int, reason: str
) -> None:
    assert protocols_fault(in_protocols, deposited) == reason


# Ten of `a` and twenty of `b` went into a pool that is still open.
POOL_LOTS = [RemainingLots("chain:a", "", 10, 0, deposited=10), RemainingLots("chain:b", "", 20, 0, deposited=20)]


@pytest.mark.parametrize(
    ("a", "b", "pools", "faults"),
    [
        (7, 25, [{"chain:a": 10, "chain:b": 20}], ["", ""]),
        (0, 41, [{"chain:a": 10, "chain:b": 20}], ["", ""]),
        (7, 25, [], [ELSEWHERE, ""]),
        (7, 22, [{"chain:a": 10, "chain:b": 20}], [ELSEWHERE, ""]),
        (7, 15, [{"chain:a": 10, "chain:b": 20}], [ELSEWHERE, ELSEWHERE]),
        (0, 0, [{"chain:a": 10, "chain:b": 20}], [ELSEWHERE, ELSEWHERE]),
        (6, 25, [{"chain:a": 3, "chain:b": 20}], [ELSEWHERE, ""]),
        (6, 25, [{"chain:a": 3, "chain:b": 10}, {"chain:a": 1, "chain:b": 10}], ["", ""]),
        (6, 25, [{"chain:a": 10, "chain:c": 20}], [ELSEWHERE, ""]),
    ],
)
def test_less_of_one_token_in_a_pool_is_explained_by_more_of_another(
    a: int, b: int, pools: list[dict[str, int]], faults: list[str]
) -> None:
    holdings = {("chain:a", ""): HeldAsset(0, a), ("chain:b", ""): HeldAsset(0, b)}
    checked = closings(POOL_LOTS, holdings, lambda asset: True, pools)
    assert [closing.protocols_fault for closing in checked.values()] == faults


def test_a_token_that_a_pool_alone_gave_costs_nothing() -> None:
    lots = [RemainingLots("chain:a", "", 10, 0, deposited=10)]
    holdings = {("chain:a", ""): HeldAsset(0, 4), ("chain:b", ""): HeldAsset(0, 12)}
    checked = closings(lots, holdings, lambda asset: True, [{"chain:a": 10, "chain:b": 0}])
    assert [(closing.protocols_fault, closing.is_from_pool) for closing in checked.values()] == [
        ("", False),
        ("", True),
    ]
    unexplained = closings(lots, holdings, lambda asset: True)
    assert [closing.protocols_fault for closing in unexplained.values()] == [ELSEWHERE, UNSEEN]


def test_one_of_a_collection_is_not_compared() -> None:
    lots = [RemainingLots("chain:nft:12", "", 1, 0)]
    assert closings(lots, {}, lambda asset: True) == {}


def test_wallets_close_one_by_one() -> None:
    lots = [RemainingLots("chain:a", "me", 5, 0), RemainingLots("chain:a", "mine", 2, 0)]
    holdings = {("chain:a", "me"): HeldAsset(4), ("chain:a", "mine"): HeldAsset(3)}
    checks = closings(lots, holdings, lambda asset: True)
    assert {closing.wallet: closing.difference for closing in checks.values()} == {"me": -1, "mine": 1}


kinds = st.sampled_from(
    ["buy", "income", "received", "sell", "sent", "fee", "gift", "deposit", "withdraw", "unasked", "borrow", "repay"]
)


@given(st.lists(st.tuples(kinds, st.integers(1, 50), st.sampled_from(ASSETS)), max_size=30))
def test_every_unit_that_came_and_did_not_leave_is_expected(moves: list[tuple[Kind, int, str]]) -> None:
    """An independent ledger of the wallet: what came less what left, and it closes exactly then."""
    entries = [entry(kind, quantity, asset, 1, number) for number, (kind, quantity, asset) in enumerate(moves)]
    comes = {"buy", "income", "received", "withdraw", "unasked", "borrow"}
    balances = dict.fromkeys(ASSETS, 0)
    for kind, quantity, asset in moves:
        balances[asset] += quantity if kind in comes else -quantity
    holdings = {(asset, ""): HeldAsset(balance) for asset, balance in balances.items() if balance > 0}
    checks = closings(gains_of(entries, "fifo").remaining, holdings, lambda asset: True)
    for (asset, _), closing in checks.items():
        assert closing.moved == balances[asset]
        assert closing.is_closed == (balances[asset] >= 0)
    assert {asset for asset, _ in checks} >= {asset for asset, balance in balances.items() if balance > 0}


@given(st.integers(0, 10**30), st.integers(0, 10**12), st.integers(1, 10**9))
def test_value_is_cost_and_open_gain_to_the_last_digit(cost: int, quantity: int, price: int) -> None:
    lots = RemainingLots("chain:a", "", quantity, cost)
    closing = ClosingCheck("chain:a", "", quantity, HeldAsset(quantity))
    gains = gains_of([], "fifo")
    gains.remaining = [lots]
    current = CurrentHoldings(closings={("chain:a", ""): closing})
    pnl = document(gains, FACTS, {"chain:a": Decimal(price)}, method="fifo", addresses=["me"], current=current)
    assert money(Decimal(pnl.value)) == money(Decimal(pnl.total_cost_basis)) + money(Decimal(pnl.open_pnl))


def test_what_one_pool_took_may_have_been_given_by_another_one_that_shares_a_token() -> None:
    lots = [RemainingLots(f"chain:{name}", "", 100, 0, deposited=100) for name in "abcd"]
    holdings = {(f"chain:{name}", ""): HeldAsset(0, raw) for name, raw in zip("abcd", (90, 95, 140, 90), strict=True)}
    pools = [{"chain:b": 100, "chain:c": 100}, {"chain:a": 100, "chain:b": 100}]
    checked = closings(lots, holdings, lambda asset: True, pools)
    assert {each.asset: each.protocols_fault for each in checked.values()} == {
        "chain:a": "",
        "chain:b": "",
        "chain:c": "",
        "chain:d": ELSEWHERE,  # no pool has it
    }
