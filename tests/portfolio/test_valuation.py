from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from chainfolio.amounts import MAX_RAW
from chainfolio.contracts import Holding, Issue
from portfolio.valuation import ValuedPosition, value, valued
from tests.portfolio.examples import ALICE, BLOCK, BOB, erc20, native, price, snapshot


def test_a_holding_nobody_can_price_is_set_aside_not_zero() -> None:
    result = value(
        [snapshot(Holding(ALICE, native(), 2 * 10**18), Holding(ALICE, erc20(), 9), prices=(price(native(), "2000"),))]
    )
    assert [(each.amount, each.value_usd) for each in result.holdings] == [
        (Decimal(2), Decimal(4000)),
        (Decimal("0.000009"), None),
    ]
    assert result.value_usd == 4000


def test_a_token_without_decimals_is_listed_with_an_issue_and_no_worth_even_if_priced() -> None:
    token = erc20(decimals=None)
    result = value([snapshot(Holding(ALICE, token, 9), prices=(price(token, "1"),))])
    assert [(each.amount, each.value_usd) for each in result.holdings] == [(None, None)]
    assert [issue.subject for issue in result.unclear] == [str(token.asset)]
    assert result.unread == {ALICE: ()}


def test_holdings_of_zero_are_left_out() -> None:
    assert value([snapshot(Holding(ALICE, native(), 0))]).holdings == ()


def test_debts_are_positive_and_the_worth_is_net_and_exact() -> None:
    token = erc20(decimals=77)
    part = valued(Holding(ALICE, token, MAX_RAW), "ethereum", BLOCK, price(token, "1"))
    less = valued(Holding(ALICE, token, MAX_RAW - 1), "ethereum", BLOCK, price(token, "1"))
    position = ValuedPosition(ALICE, "ethereum", "aave3", "LENDING", "Main", supplied=(part,), borrowed=(less,))
    assert position.value_usd == Decimal("1E-77")
    assert value([], [position]).value_usd == Decimal("1E-77")


def test_each_account_sees_its_own_and_no_one_elses_issues() -> None:
    issues = (Issue("evm", ALICE, "a"), Issue("evm", BOB, "b"), Issue("evm", "0xtoken", "c"))
    result = value(
        [
            snapshot(Holding(ALICE, native(), 1), Holding(BOB, native(), 2), accounts=(ALICE, BOB), issues=issues),
            snapshot(chain="base", accounts=(BOB,), issues=(Issue("evm", "0xtoken", "d"),)),
        ]
    )
    alice, bob = result.of(ALICE), result.of(BOB)
    assert [each.holding.raw for each in alice.holdings] == [1]
    assert [issue.reason for issue in alice.unread[ALICE]] == ["a", "c"]
    assert [issue.reason for issue in bob.unread[BOB]] == ["b", "c", "d"]
    assert (alice.scope, bob.scope) == ({ALICE: ("ethereum",)}, {BOB: ("base", "ethereum")})


def test_what_a_token_says_of_one_account_is_no_issue_of_another() -> None:
    issues = (Issue("balance", "0xtoken", "bob's", account=BOB), Issue("index", "ethereum", "everybody's"))
    holdings = (Holding(ALICE, native(), 1), Holding(BOB, native(), 2))
    result = value([snapshot(*holdings, accounts=(ALICE, BOB), issues=issues)])
    assert [issue.reason for issue in result.unread[ALICE]] == ["everybody's"]
    assert [issue.reason for issue in result.unread[BOB]] == ["bob's", "everybody's"]
    assert result.apart() == {ALICE: result.of(ALICE), BOB: result.of(BOB)}


@given(st.integers(1, MAX_RAW), st.integers(0, 255), st.decimals(Decimal("1E-18"), Decimal(10**12), places=18))
def test_worth_is_exact_for_every_raw_and_decimals(raw: int, decimals: int, usd: Decimal) -> None:
    token = erc20(decimals=decimals)
    result = value([snapshot(Holding(ALICE, token, raw), prices=(price(token, str(usd)),))])
    assert Fraction(result.value_usd) == Fraction(raw, 10**decimals) * Fraction(usd)
