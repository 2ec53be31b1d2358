"""Liquity V1, replayed from recorded answers of its contracts."""

from __future__ import annotations

from decimal import Decimal

import pytest

from chainfolio.adapters.evm.positions.outcomes import Outcome
from chainfolio.plans import Reverted
from tests.protocols.published import ETHER, Overrides, RecordedState, amounts, exchanged, needs_contracts, positions

pytestmark = needs_contracts
FEED = "price feed (the repository's own for test nets)"
CONTRACTS = {
    "borrower_operations": ["borrower operations"],
    "stability_pool": ["stability pool"],
    "lqty_staking": ["LQTY staking"],
    "trove_manager": ["trove manager"],
    "surplus_pool": ["surplus pool"],
    "price_feed": [FEED],
    "lusd": ["LUSD"],
    "lqty": ["LQTY"],
}
OPENED, LIQUIDATED, SPREAD = 0, 1, 2
ETH = 10**18


def outcomes_of(index: int, account: str, *contracts: str, overrides: Overrides | None = None) -> list[Outcome]:
    state = RecordedState("liquity", index)
    price = state.value(FEED, "getPrice()(uint256)")
    parties = [state.roles[contract] for contract in contracts]
    return state.outcomes(
        "liquity", CONTRACTS, account, exchanged(*parties), {(FEED, "lastGoodPrice"): price, **(overrides or {})}
    )


@pytest.mark.parametrize(
    ("index", "account", "collateral", "debt"),
    [
        (OPENED, "alice", 20 * ETH, 10_250 * ETH),
        (OPENED, "carol", 3 * ETH, 5_225 * ETH),
        (LIQUIDATED, "carol", 0, 0),
        (SPREAD, "alice", 20_497_500_000_000_000_000, 10_928_125 * 10**15),
        (SPREAD, "bob", 61_492_500_000_000_000_000, 23_339_375 * 10**15),
    ],
)
def test_a_trove_has_what_liquidations_spread_over_it(index: int, account: str, collateral: int, debt: int) -> None:
    state = RecordedState("liquity", index)
    troves = positions(outcomes_of(index, account, "borrower operations"))
    assert amounts(troves, "supplied") == ({ETHER: collateral} if collateral else {})
    assert amounts(troves, "borrowed") == ({state.roles["LUSD"]: debt} if debt else {})


def test_health_is_the_protocol_s_ratio_over_110_percent() -> None:
    state = RecordedState("liquity", SPREAD)
    price = state.value(FEED, "getPrice()(uint256)")
    ratio = state.value("trove manager", "getCurrentICR(address,uint256)(uint256)", state.roles["alice"], price)
    health = positions(outcomes_of(SPREAD, "alice", "borrower operations"))[0].health
    assert health is not None
    assert abs(health - Decimal(ratio).scaleb(-18) / Decimal("1.1")) < Decimal("1e-17")
    without_price = outcomes_of(SPREAD, "alice", "borrower operations", overrides={(FEED, "lastGoodPrice"): Reverted()})
    assert positions(without_price)[0].health is None


@pytest.mark.parametrize(
    ("index", "deposit", "ether", "lqty"),
    [
        (OPENED, 6_000 * ETH, 0, 0),
        (LIQUIDATED, 2_516_666_666_666_666_664_000, 1_989_999_999_999_996_000, 390_034_521_313_976_789_328_000),
    ],
    ids=["opened", "liquidated"],
)
def test_a_stability_deposit_shrinks_and_gains_ether(index: int, deposit: int, ether: int, lqty: int) -> None:
    state = RecordedState("liquity", index)
    (position,) = positions(outcomes_of(index, "alice", "stability pool"))
    assert amounts([position], "supplied") == {state.roles["LUSD"]: deposit}
    assert amounts([position], "rewards") == ({ETHER: ether, state.roles["LQTY"]: lqty} if ether else {})
    assert "pays more" in position.remark


def test_staked_lqty_earns_fees_in_lusd() -> None:
    for index, fees in ((OPENED, 5 * ETH), (SPREAD, 17_500_000_000_000_000_000)):
        state = RecordedState("liquity", index)
        stakes = positions(outcomes_of(index, "alice", "LQTY staking"))
        assert amounts(stakes, "supplied") == {state.roles["LQTY"]: 400 * ETH}
        assert amounts(stakes, "rewards") == {state.roles["LUSD"]: fees}


def test_a_refusing_contract_is_an_issue_and_hides_no_other() -> None:
    overrides = {("stability pool", "getDepositorETHGain"): Reverted()}
    outcomes = outcomes_of(
        OPENED, "alice", "stability pool", "LQTY staking", "borrower operations", overrides=overrides
    )
    assert sorted(len(each.issues) for each in outcomes if not each.positions) == [1]
    assert amounts(positions(outcomes), "borrowed") == {RecordedState("liquity", OPENED).roles["LUSD"]: 10_250 * ETH}
