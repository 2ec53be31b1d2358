"""Assets that a contract mints or burns: returned deposits, payments for shares, rewards and loans."""

from __future__ import annotations

import msgspec
import pytest

from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from tests.portfolio.test_pnl_records import ME, NOBODY, OTHER, asset, brief, read, record


def bought(symbol: str, amount: str, value: str, number: int) -> TransactionRecord:
    return record("SWAP", [asset(symbol, amount, value)], [asset("eur", "1", value)], hash=f"0xb{number}")


def test_a_burnt_stake_that_is_minted_again_is_returned() -> None:
    staked = record("STAKE", [], [asset("bnt", "100", "100", NOBODY)], hash="0x1")
    unstaked = record("UNSTAKE", [asset("bnt", "105", "126", NOBODY)], [], hash="0x2")
    entries = read(bought("bnt", "100", "100", 1), staked, unstaked)
    assert brief(entries[2:]) == {
        ("deposit", "bnt", 100, 100),
        ("withdraw", "bnt", 100, 120),
        ("income", "bnt", 5, 6),
    }
    assert [(each.kind, each.quantity) for each in gains_of(entries, "fifo").gains if each.asset == "chain:bnt"] == [
        ("income", 5)
    ]


def test_a_bought_share_is_sold_for_the_minted_asset_although_some_of_it_is_staked() -> None:
    staked = record("STAKE", [], [asset("bnt", "60", "60", "farm")], hash="0x1")
    redeemed = record("WITHDRAW", [asset("bnt", "12", "12", NOBODY)], [asset("share", "10", "12", NOBODY)], hash="0x2")
    entries = read(bought("bnt", "100", "100", 1), staked, bought("share", "10", "11", 2), redeemed)
    assert brief(entries[-2:]) == {("sell", "share", 10, 12), ("buy", "bnt", 12, 12)}


def test_all_that_a_bought_share_pays_is_its_price() -> None:
    staked = record("STAKE", [], [asset("bnt", "60", "60", "farm")], hash="0x1")
    payment = [asset("bnt", "12", "12"), asset("eth", "3", "9")]
    redeemed = record("WITHDRAW", payment, [asset("share", "10", "20", NOBODY)], hash="0x2")
    entries = read(bought("bnt", "100", "100", 1), staked, bought("share", "10", "11", 2), redeemed)
    assert brief(entries[-3:]) == {("sell", "share", 10, 21), ("buy", "bnt", 12, 12), ("buy", "eth", 3, 9)}


def test_what_is_minted_beside_a_returned_deposit_is_a_reward() -> None:
    staked = [
        record("STAKE", [], [asset(symbol, "60", "60", f"{symbol} farm")], hash=symbol) for symbol in ("lp", "cvx")
    ]
    payment = [asset("lp", "60", "60", "lp farm"), asset("cvx", "5", "5", NOBODY)]
    entries = read(*staked, record("UNSTAKE", payment, hash="0x3"))
    assert brief(entries[2:]) == {("withdraw", "lp", 60, 60), ("income", "cvx", 5, 5)}


@pytest.mark.parametrize("taker", ["pool", "voter"])
def test_what_is_minted_beside_a_reward_alone_is_a_reward_although_some_of_it_is_locked(taker: str) -> None:
    locked = record("STAKE", [], [asset("cvx", "100", "100", "locker")], hash="0x1")
    staked = record("STAKE", [], [asset("cvxcrv", "10", "10", taker)], hash="0x2", sender=OTHER, recipient=ME)
    payment = [asset("crv", "3", "30", "pool"), asset("cvx", "5", "35", NOBODY)]
    claimed = record("UNSTAKE", payment, hash="0x3", sender=OTHER, recipient=ME)
    assert brief(read(locked, staked, claimed)[2:]) == {("income", "crv", 3, 30), ("income", "cvx", 5, 35)}


def test_a_stake_that_its_contract_burnt_returns_beside_a_reward() -> None:
    staked = record("STAKE", [], [asset("bnt", "100", "100", "farm")], hash="0x1")
    payment = [asset("crv", "3", "30", "farm"), asset("bnt", "100", "120", NOBODY)]
    entries = read(staked, record("UNSTAKE", payment, hash="0x2", recipient="farm"))
    assert brief(entries[1:]) == {("income", "crv", 3, 30), ("withdraw", "bnt", 100, 120)}


OPENED = record("OPENVAULT", [asset("lusd", "2000", "2000", NOBODY)], [asset("coin", "10", "100", "trove")], hash="0x1")


def test_minted_debt_beside_returned_collateral_is_a_loan() -> None:
    adjusted = record("WITHDRAW", [asset("lusd", "500", "500", NOBODY), asset("coin", "1", "11", "trove")], hash="0x2")
    entries = read(bought("coin", "50", "500", 1), OPENED, adjusted)
    assert brief(entries[-2:]) == {("borrow", "lusd", 500, 500), ("withdraw", "coin", 1, 11)}
    assert [gain.asset for gain in gains_of(entries, "fifo").gains] == ["chain:eur"]


def test_burnt_debt_beside_more_collateral_is_a_repayment() -> None:
    outgoing = [asset("lusd", "500", "500", NOBODY), asset("coin", "1", "11", "trove")]
    entries = read(bought("coin", "50", "500", 1), OPENED, record("DEPOSIT", [], outgoing, hash="0x2"))
    assert brief(entries[-2:]) == {("repay", "lusd", 500, 500), ("deposit", "coin", 1, 11)}
    assert [(each.asset, each.quantity) for each in gains_of(entries, "fifo").remaining if each.quantity] == [
        ("chain:coin", 50),
        ("chain:lusd", 1500),
    ]


def test_a_contract_that_lent_nothing_before_mints_no_loan() -> None:
    payment = [asset("lusd", "500", "500", NOBODY), asset("coin", "1", "11", "trove")]
    withdrawal = record("WITHDRAW", payment, hash="0x2", recipient="another contract")
    entries = read(bought("coin", "50", "500", 1), OPENED, withdrawal)
    assert brief(entries[-2:]) == {("income", "lusd", 500, 500), ("withdraw", "coin", 1, 11)}


@pytest.mark.parametrize(
    ("called", "sender"), [(ME, OTHER), (ME, ME), ("entry point", OTHER), ("relay", OTHER), ("trove", ME)]
)
def test_only_a_contract_that_lent_mints_a_loan_and_burns_a_repayment_alone(called: str, sender: str) -> None:
    opened = msgspec.structs.replace(OPENED, hash="0x1", sender=sender, recipient=called)
    minted = record("TRANSFERIN", [asset("lusd", "7", "7", NOBODY)], hash="0x2", sender=sender, recipient=called)
    burnt = record("TRANSFEROUT", [], [asset("lusd", "5", "5", NOBODY)], hash="0x3", sender=sender, recipient=called)
    entries = read(opened, minted, burnt, gas_holders={"entry point"})
    kinds = ("borrow", "repay") if called == "trove" else ("received", "sent")
    assert [(each.kind, each.quantity) for each in entries[2:]] == [(kinds[0], 7), (kinds[1], 5)]
