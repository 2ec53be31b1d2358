"""Costs of lots shared out over a portfolio: examples by hand, and sums for any amounts."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.contracts import Holding, Spam
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.pnl.closing import ELSEWHERE, NO_LOTS, UNSEEN
from chainfolio.portfolio.pnl.debts import LESS_OWED, MORE_OWED, NOT_BORROWED, Debt
from chainfolio.portfolio.pnl.entries import money
from chainfolio.portfolio.pnl.gains import NO_PRICE, SHORT, Gain, Gains, RemainingLots
from chainfolio.portfolio.pnl.in_portfolio import AccountGains, account_gains, with_gains
from chainfolio.portfolio.valuation import ValuedPosition, valuate, value_holding
from tests.portfolio.examples import ALICE, BLOCK, CHAINS, erc20, native, price, snapshot

COIN, USDC = native(), erc20()
DAI = erc20("0x" + "da" * 20, 18, "DAI")
KEYS = {token.symbol: f"ethereum:{token.asset.shown_contract}" for token in (COIN, USDC, DAI)}
# An asset, how much of it, what it cost, and how much of it was deposited where that is something.
Known = tuple[str, int, str | None] | tuple[str, int, str | None, int]
PRICES = {"ETH": "2000", "USDC": "1", "DAI": "1.01"}


def usd(text: str) -> int:
    return money(Decimal(text))


def lots(*holdings: Known, closed: dict[str, str | None] | None = None, reason: str = "") -> AccountGains:
    lots_by_asset = {}
    for symbol, quantity, cost, *deposited in holdings:
        unknown_reason, units = ("unknown", None) if cost is None else ("", usd(cost))
        deposited_raw = int(deposited[0]) if deposited else 0
        lots_by_asset[KEYS[symbol]] = RemainingLots(
            KEYS[symbol], "", quantity, units, unknown_reason, deposited=deposited_raw
        )
    sums = {KEYS[symbol]: None if gain is None else usd(gain) for symbol, gain in (closed or {}).items()}
    return AccountGains(lots_by_asset, sums, reason=reason)


def document(loose: dict[str, int], *positions: ValuedPosition, spam: dict[str, int] | None = None) -> Portfolio:
    tokens = {"ETH": COIN, "USDC": USDC, "DAI": DAI}
    wallet_snapshot = snapshot(
        *(Holding(ALICE, tokens[symbol], raw) for symbol, raw in {**loose, **(spam or {})}.items()),
        prices=tuple(price(tokens[symbol], PRICES[symbol]) for symbol in PRICES),
    )
    marks = {(ALICE, tokens[symbol].asset): Spam(100, ("LURE",)) for symbol in spam or {}}
    valuation = valuate([replace(wallet_snapshot, spam=marks)])
    return portfolio(ALICE, replace(valuation, positions=tuple(positions)), CHAINS, updated_ms=1)


Side = dict[str, int] | None


def position(supplied: Side = None, borrowed: Side = None, rewards: Side = None) -> ValuedPosition:
    tokens = {"ETH": COIN, "USDC": USDC, "DAI": DAI}

    def parts(side: Side) -> Any:
        return tuple(
            value_holding(
                Holding(ALICE, tokens[s], raw, "aave3", "LENDING"), "ethereum", BLOCK, price(tokens[s], PRICES[s])
            )
            for s, raw in (side or {}).items()
        )

    sides = parts(supplied), parts(borrowed), parts(rewards)
    return ValuedPosition(ALICE, "ethereum", "aave3", "LENDING", "pool", *sides)


def asset_of(filled: Portfolio, protocol: str = "wallet", symbol: str = "usdc") -> Any:
    kinds = filled.asset_by_protocols[protocol].chains["ethereum"].protocol_positions
    every = [
        asset
        for kind in kinds.values()
        for asset in (*kind.assets, *(each for nested in kind.protocol_positions for each in nested.supply_assets))
    ]
    return next(asset for asset in every if asset.symbol == symbol)


def issues(filled: Portfolio) -> list[tuple[str, str]]:
    return [(issue.subject, issue.reason) for issue in filled.issues if issue.adapter == "pnl"]


def test_cost_and_gain_stand_at_every_level() -> None:
    gains = lots(("USDC", 150 * 10**6, "120"), ("ETH", 10**18, "1500"), closed={"USDC": "7.5", "ETH": "-2"})
    filled = with_gains(document({"USDC": 150 * 10**6, "ETH": 10**18}), gains)
    wallet = filled.asset_by_protocols["wallet"]
    on_chain = wallet.chains["ethereum"]
    assert (asset_of(filled).total_cost_basis, asset_of(filled).open_pnl) == ("120", "30")
    levels = (filled.chains["ethereum"], wallet, on_chain, on_chain.protocol_positions["WALLET"])
    assert {(each.total_cost_basis, each.total_open_pnl, each.total_closed_pnl) for each in levels} == {
        ("1620", "530", "5.5")
    }
    assert (filled.total_cost_basis, filled.open_pnl, filled.closed_pnl) == ("1620", "530", "5.5")
    assert issues(filled) == []


def test_a_deposit_carries_its_part_of_the_cost_with_it_and_what_it_earned_is_gain() -> None:
    """100 of 150 were deposited and are 110 now: both places together cost what the lots did."""
    gains = lots(("USDC", 150 * 10**6, "120", 100 * 10**6))
    filled = with_gains(document({"USDC": 50 * 10**6}, position({"USDC": 110 * 10**6})), gains)
    loose, supplied = asset_of(filled), asset_of(filled, "aave3")
    assert (loose.total_cost_basis, supplied.total_cost_basis) == ("40", "80")
    assert (filled.total_cost_basis, filled.open_pnl) == ("120", "40")
    assert filled.asset_by_protocols["aave3"].total_closed_pnl == "N/A"


def test_what_a_pool_gave_for_other_tokens_costs_nothing_and_they_keep_their_cost() -> None:
    """A pool got all USDC, and exchanged half of it for DAI."""
    pool_position = replace(position({"USDC": 50 * 10**6, "DAI": 60 * 10**18}), type="LIQUIDITYPOOL")
    without_pool = lots(("USDC", 100 * 10**6, "90", 100 * 10**6))
    in_pool = replace(without_pool, pools=({KEYS["USDC"]: 100 * 10**6, KEYS["DAI"]: 0},))
    for held_position, account_lots in (
        (pool_position, without_pool),
        (replace(pool_position, type="LENDING"), in_pool),
    ):
        assert with_gains(document({}, held_position), account_lots).open_pnl == "N/A"
    filled = with_gains(document({}, pool_position), in_pool)
    usdc, dai = asset_of(filled, "aave3"), asset_of(filled, "aave3", "dai")
    assert (usdc.total_cost_basis, dai.total_cost_basis, dai.open_pnl) == ("90", "0", dai.value)
    assert Decimal(filled.open_pnl) == Decimal(usdc.value) + Decimal(dai.value) - 90
    assert issues(filled) == []


def test_a_position_with_nothing_in_it_explains_nothing() -> None:
    """Anybody can send the collectible of a position that names the tokens of another one."""
    pool_position = replace(position({"USDC": 50 * 10**6, "DAI": 60 * 10**18}), type="LIQUIDITYPOOL")
    gains = lots(("USDC", 100 * 10**6, "90", 100 * 10**6))
    forged = replace(gains, pools=({KEYS["USDC"]: 0, KEYS["DAI"]: 0},))
    assert asset_of(with_gains(document({}, pool_position), forged), "aave3", "dai").open_pnl == "N/A"


def test_a_farm_shows_a_pool_only_by_several_tokens() -> None:
    gains = lots(("USDC", 100 * 10**6, "90", 100 * 10**6))
    in_pool = replace(gains, pools=({KEYS["USDC"]: 100 * 10**6, KEYS["DAI"]: 0},))
    both = replace(position({"USDC": 50 * 10**6, "DAI": 60 * 10**18}), type="FARMING")
    single_positions = [
        replace(position({symbol: raw}), type="FARMING") for symbol, raw in (("USDC", 50 * 10**6), ("DAI", 6))
    ]
    assert with_gains(document({}, both), in_pool).open_pnl != "N/A"
    assert with_gains(document({}, *single_positions), in_pool).open_pnl == "N/A"


def test_what_can_be_claimed_cost_nothing() -> None:
    gains = lots(("USDC", 10**6, "1", 10**6))
    filled = with_gains(document({}, position({"USDC": 10**6}, rewards={"DAI": 10**18})), gains)
    assert (filled.total_cost_basis, filled.open_pnl) == ("1", "1.01")


def borrowed_dai(quantity: int, value: str | None, borrowed: int) -> AccountGains:
    """Known gains with one USDC that is worth what it cost, and a loan of DAI."""
    debt = Debt(quantity, None if value is None else usd(value), borrowed)
    return replace(lots(("USDC", 10**6, "1")), debts={KEYS["DAI"]: debt})


def test_the_gain_of_a_debt_is_what_was_borrowed_less_what_is_owed_now() -> None:
    gains = borrowed_dai(10**18, "0.99", 3 * 10**18)
    positions = [position(borrowed={"DAI": raw}) for raw in (10**18, 10**18 // 2)]
    filled = with_gains(document({"USDC": 10**6}, *positions), gains)
    kinds = filled.asset_by_protocols["aave3"].chains["ethereum"].protocol_positions
    debts = [asset for nested in kinds["LENDING"].protocol_positions for asset in nested.borrow_assets]
    assert [(each.total_cost_basis, each.open_pnl) for each in debts] == [("0.33", "-0.175"), ("0.66", "-0.35")]
    assert (filled.total_cost_basis, filled.open_pnl) == ("0.01", "-0.525")
    assert Decimal(filled.networth) == Decimal("0.01") + Decimal("-0.525")
    assert issues(filled) == []


@pytest.mark.parametrize(
    ("gains", "fault"),
    [
        (borrowed_dai(2 * 10**18, "2", 2 * 10**18), LESS_OWED),
        (borrowed_dai(10**18 // 2, "2", 10**18 // 2), MORE_OWED),
        (borrowed_dai(10**18, None, 10**18), NO_PRICE),
    ],
    ids=["less owed", "more owed", "no price"],
)
def test_a_debt_that_its_loans_do_not_explain_has_no_known_gain(gains: AccountGains, fault: str) -> None:
    filled = with_gains(document({"USDC": 10**6}, position(borrowed={"DAI": 10**18})), gains)
    assert (filled.open_pnl, filled.total_cost_basis) == ("N/A", "N/A")
    assert issues(filled) == [(KEYS["DAI"], f"its gain is not known: {fault}")]


def test_a_debt_that_no_transaction_borrowed_has_no_known_gain() -> None:
    gains = lots(("USDC", 10**6, "1"))
    filled = with_gains(document({"USDC": 10**6}, position(borrowed={"DAI": 10**18})), gains)
    assert filled.asset_by_protocols["wallet"].total_open_pnl == "0"
    assert (filled.open_pnl, filled.total_cost_basis) == ("N/A", "N/A")
    assert issues(filled) == [(KEYS["DAI"], f"its gain is not known: {NOT_BORROWED}")]


@pytest.mark.parametrize(
    ("gains", "reason"),
    [
        (lots(), NO_LOTS),
        (lots(("USDC", 10**6, None)), "unknown"),
        (lots(("USDC", 10**6 - 1, "1")), "its wallet holds 1 of it, and 0.999999 by its transactions"),
        (lots(("USDC", 10**6 + 1, "1")), "its wallet holds 1 of it, and 1.000001 by its transactions"),
    ],
)
def test_where_lots_are_not_what_is_held_nothing_is_claimed_and_it_is_said(gains: AccountGains, reason: str) -> None:
    filled = with_gains(document({"USDC": 10**6}), gains)
    assert (asset_of(filled).total_cost_basis, asset_of(filled).open_pnl) == ("N/A", "N/A")
    assert (filled.total_cost_basis, filled.open_pnl) == ("N/A", "N/A")
    assert issues(filled) == [(KEYS["USDC"], f"its gain is not known: {reason}")]
    assert filled.completeness == "complete"


def test_what_was_deposited_and_is_not_seen_takes_its_cost_along() -> None:
    """100 were deposited and 60 are visible: the fate of the rest is unknown."""
    gains = lots(("USDC", 150 * 10**6, "120", 100 * 10**6))
    filled = with_gains(document({"USDC": 50 * 10**6}, position({"USDC": 60 * 10**6})), gains)
    assert (asset_of(filled).total_cost_basis, asset_of(filled, "aave3").total_cost_basis) == ("40", "N/A")
    assert issues(filled) == [(KEYS["USDC"], f"its gain is not known: {ELSEWHERE}")]


def test_what_others_put_into_a_protocol_has_no_known_cost_and_the_wallet_keeps_its_own() -> None:
    filled = with_gains(document({"USDC": 10**6}, position({"USDC": 10**6})), lots(("USDC", 10**6, "3")))
    assert (asset_of(filled).total_cost_basis, asset_of(filled, "aave3").total_cost_basis) == ("3", "N/A")
    assert issues(filled) == [(KEYS["USDC"], f"its gain is not known: {UNSEEN}")]


def test_more_that_left_than_came_leaves_no_lot_that_could_be_trusted() -> None:
    gains = AccountGains({KEYS["USDC"]: RemainingLots(KEYS["USDC"], "", 10**6, 1, short=5)})
    assert issues(with_gains(document({"USDC": 10**6}), gains)) == [(KEYS["USDC"], f"its gain is not known: {SHORT}")]


def test_spam_is_in_no_sum_and_has_no_gain() -> None:
    filled = with_gains(
        document({"USDC": 10**6}, spam={"DAI": 10**18}), lots(("USDC", 10**6, "3"), ("DAI", 10**18, "1"))
    )
    assert (filled.total_cost_basis, filled.open_pnl) == ("3", "-2")
    assert asset_of(filled, symbol="dai").open_pnl == "N/A"
    assert issues(filled) == []


def test_a_disposal_without_a_known_gain_makes_only_the_closed_sums_unknown() -> None:
    filled = with_gains(document({"USDC": 10**6}), lots(("USDC", 10**6, "3"), closed={"DAI": None}))
    assert (filled.closed_pnl, filled.open_pnl) == ("N/A", "-2")


def test_why_nothing_is_known_is_an_issue_and_every_number_stays_unknown() -> None:
    before = document({"USDC": 10**6})
    filled = with_gains(before, lots(reason="nobody indexed it"))
    assert issues(filled) == [(ALICE, "gains are not known: nobody indexed it")]
    assert (filled.asset_by_protocols, filled.open_pnl) == (before.asset_by_protocols, "N/A")


def test_gains_become_what_a_portfolio_shows_of_an_account() -> None:
    gain = Gain("sell", "ethereum:a", "", "0x1", 1, 5, usd("9"), usd("4"))
    income = gain._replace(kind="income", cost=0)
    summary = account_gains(Gains([gain, income, gain], [RemainingLots("ethereum:a", "", 5, 1)]), {})
    assert summary.closed == {"ethereum:a": usd("10")}
    assert set(summary.lots) == {"ethereum:a"}


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=6), st.integers(0, 10**20), st.integers(0, 10**12))
def test_the_places_of_an_asset_together_cost_what_its_lots_did(deposits: list[int], cents: int, loose: int) -> None:
    cost = str(Decimal(cents).scaleb(-7))
    gains = lots(("USDC", loose + sum(deposits), cost, sum(deposits)))
    filled = with_gains(document({"USDC": loose}, *(position({"USDC": raw}) for raw in deposits)), gains)
    assert filled.total_cost_basis == str(Decimal(cost).normalize().__format__("f"))
    assert Decimal(filled.open_pnl) == Decimal(filled.networth) - Decimal(filled.total_cost_basis)
