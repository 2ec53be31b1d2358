from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from chainfolio.amounts import MAX_RAW
from chainfolio.contracts import Holding, Issue, Position, Spam
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.valuation import MAX_UNCLEAR, ValuedPosition, valuate, value_holding
from tests.portfolio.examples import ALICE, BLOCK, BOB, CHAINS, erc20, native, price, snapshot


def test_a_holding_nobody_can_price_is_set_aside_not_zero() -> None:
    result = valuate(
        [snapshot(Holding(ALICE, native(), 2 * 10**18), Holding(ALICE, erc20(), 9), prices=(price(native(), "2000"),))]
    )
    assert [(each.amount, each.value_usd) for each in result.holdings] == [
        (Decimal(2), Decimal(4000)),
        (Decimal("0.000009"), None),
    ]
    assert result.value_usd == 4000


def test_a_token_without_decimals_is_listed_with_an_issue_and_no_worth_even_if_priced() -> None:
    token = erc20(decimals=None)
    result = valuate([snapshot(Holding(ALICE, token, 9), prices=(price(token, "1"),))])
    assert [(each.amount, each.value_usd) for each in result.holdings] == [(None, None)]
    assert [issue.subject for issue in result.unclear_issues] == [str(token.asset)]
    assert result.unread == {ALICE: ()}


def test_a_flood_of_tokens_without_decimals_is_one_issue() -> None:
    tokens = [erc20(f"0x{number:040x}", decimals=None) for number in range(1, MAX_UNCLEAR + 2)]
    result = valuate([snapshot(*(Holding(ALICE, token, 9) for token in tokens))])
    (issue,) = result.unclear_issues
    assert (issue.count, issue.makes_partial) == (len(tokens), False)
    assert len(valuate([snapshot(*(Holding(ALICE, token, 9) for token in tokens[1:]))]).unclear_issues) == MAX_UNCLEAR


def test_a_holding_is_worth_no_more_than_its_market_could_pay_and_that_is_said() -> None:
    token = erc20()
    thin = replace(price(token, "10"), depth_usd=Decimal(7000))
    result = valuate([snapshot(Holding(ALICE, token, 700 * 10**6), prices=(thin,))])
    assert result.value_usd == 7000
    assert result.capped_issues == ()
    result = valuate([snapshot(Holding(ALICE, token, 700 * 10**6 + 1), prices=(thin,))])
    assert result.value_usd == 7000
    (issue,) = result.capped_issues
    assert (issue.subject, issue.makes_partial) == (str(token.asset), False)
    assert "7000 USD at most" in issue.reason
    assert "7000.00001 USD" in issue.reason
    document = portfolio(ALICE, result, CHAINS, updated_ms=1)
    assert (document.networth, document.completeness) == ("7000", "complete")
    assert [each.reason for each in document.issues] == [issue.reason]


def test_a_debt_is_owed_in_full_whatever_its_market_could_pay() -> None:
    token = erc20()
    thin = replace(price(token, "10"), depth_usd=Decimal(7))
    supplied, borrowed = Holding(ALICE, token, 10**6), Holding(ALICE, token, 10**6)
    position = Position(ALICE, "aave3", "LENDING", "Main", (supplied,), (borrowed,))
    result = valuate([replace(snapshot(prices=(thin,)), positions=(position,))])
    assert [part.value_usd for each in result.positions for part in each.parts] == [7, 10]
    assert result.value_usd == -3


def test_a_market_pays_an_account_once_for_all_that_it_has_of_an_asset() -> None:
    token, coin = erc20(), native()
    thin = replace(price(token, "10"), depth_usd=Decimal(7000))
    pools = tuple(
        Position(ALICE, "uniswap2", "LIQUIDITYPOOL", f"T/{name}", (Holding(ALICE, token, 500 * 10**6),))
        for name in range(100)
    )
    rewards = Position(ALICE, "farm", "FARMING", "T", rewards=(Holding(ALICE, token, 10**30),))
    debt = Position(ALICE, "aave3", "LENDING", "Main", (), (Holding(ALICE, token, 10**6),))
    holdings = Holding(ALICE, token, 300 * 10**6), Holding(BOB, token, 10**30), Holding(ALICE, coin, 10**18)
    wallet_snapshot = snapshot(*holdings, prices=(thin, price(coin, "2000")), accounts=(ALICE, BOB))
    result = valuate([replace(wallet_snapshot, positions=(*pools, rewards, debt))])
    alice = result.for_account(ALICE)
    assert [each.value_usd for each in alice.holdings] == [3000, 2000]
    assert [each.value_usd for each in alice.positions] == [4000, *[0] * 100, -10]
    assert alice.value_usd == 3000 + 4000 + 2000 - 10
    assert result.for_account(BOB).value_usd == 7000, "what it pays one account says nothing of another"
    (issue,) = alice.capped_issues
    assert "7000 USD at most" in issue.reason
    document = portfolio(ALICE, result, CHAINS, updated_ms=1)
    assert document.networth == "8990"
    assert sum(Decimal(each.value) for each in document.asset_by_protocols.values()) == 8990


def test_what_no_sum_has_in_it_takes_nothing_of_a_market_from_what_is_counted() -> None:
    token = erc20()
    thin = replace(price(token, "10"), depth_usd=Decimal(70))
    share = erc20("0x" + "5e" * 20)
    position = Position(ALICE, "farm", "FARMING", "T", (Holding(ALICE, token, 6 * 10**6),), replaces=(share.asset,))
    position_snapshot = replace(snapshot(Holding(ALICE, token, 5 * 10**6), prices=(thin,)), positions=(position,))
    spam = replace(position_snapshot, spam={(ALICE, share.asset): Spam(90, ("LINK", "NO_PRICE"))})
    totals = [each.value_usd for each in (valuate([spam]), valuate([spam]).with_spam(), valuate([position_snapshot]))]
    assert totals == [50, 70, 70]


def test_holdings_of_zero_are_left_out() -> None:
    assert valuate([snapshot(Holding(ALICE, native(), 0))]).holdings == ()


def test_debts_are_positive_and_the_worth_is_net_and_exact() -> None:
    token = erc20(decimals=77)
    part = value_holding(Holding(ALICE, token, MAX_RAW), "ethereum", BLOCK, price(token, "1"))
    less = value_holding(Holding(ALICE, token, MAX_RAW - 1), "ethereum", BLOCK, price(token, "1"))
    position = ValuedPosition(ALICE, "ethereum", "aave3", "LENDING", "Main", supplied=(part,), borrowed=(less,))
    assert position.value_usd == Decimal("1E-77")
    assert replace(valuate([]), positions=(position,)).value_usd == Decimal("1E-77")


def test_each_account_sees_its_own_and_no_one_elses_issues() -> None:
    issues = (Issue("evm", ALICE, "a"), Issue("evm", BOB, "b"), Issue("evm", "0xtoken", "c"))
    result = valuate(
        [
            snapshot(Holding(ALICE, native(), 1), Holding(BOB, native(), 2), accounts=(ALICE, BOB), issues=issues),
            snapshot(chain="base", accounts=(BOB,), issues=(Issue("evm", "0xtoken", "d"),)),
        ]
    )
    alice, bob = result.for_account(ALICE), result.for_account(BOB)
    assert [each.holding.raw for each in alice.holdings] == [1]
    assert [issue.reason for issue in alice.unread[ALICE]] == ["a", "c"]
    assert [issue.reason for issue in bob.unread[BOB]] == ["b", "c", "d"]
    assert (alice.scope, bob.scope) == ({ALICE: ("ethereum",)}, {BOB: ("base", "ethereum")})


def test_what_a_token_says_of_one_account_is_no_issue_of_another() -> None:
    issues = (Issue("balance", "0xtoken", "bob's", account=BOB), Issue("index", "ethereum", "everybody's"))
    holdings = (Holding(ALICE, native(), 1), Holding(BOB, native(), 2))
    result = valuate([snapshot(*holdings, accounts=(ALICE, BOB), issues=issues)])
    assert [issue.reason for issue in result.unread[ALICE]] == ["everybody's"]
    assert [issue.reason for issue in result.unread[BOB]] == ["bob's", "everybody's"]
    assert result.by_account() == {ALICE: result.for_account(ALICE), BOB: result.for_account(BOB)}


@given(st.integers(1, MAX_RAW), st.integers(0, 255), st.decimals(Decimal("1E-18"), Decimal(10**12), places=18))
def test_worth_is_exact_for_every_raw_and_decimals(raw: int, decimals: int, usd: Decimal) -> None:
    token = erc20(decimals=decimals)
    result = valuate([snapshot(Holding(ALICE, token, raw), prices=(price(token, str(usd)),))])
    assert Fraction(result.value_usd) == Fraction(raw, 10**decimals) * Fraction(usd)
