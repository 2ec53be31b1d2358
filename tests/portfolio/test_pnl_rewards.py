"""Rewards beside deposits and claims: what is a share, what is income, and what others sent."""

from __future__ import annotations

import pytest

from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from chainfolio.portfolio.transactions import Nft, TransactionAssetDocument
from tests.portfolio.test_pnl_records import ME, MINE, NOBODY, OTHER, POOL, USD, asset, brief, read, record


def staked(hash: str = "0x1", *came: TransactionAssetDocument) -> TransactionRecord:
    return record("STAKE", came, [asset("lp", "50", "50", "farm")], hash=hash)


def grant(counterparty: str, number: str = "7") -> TransactionAssetDocument:
    return asset("grant", "1", other=counterparty, nft=Nft(token_id=number))


def test_what_a_rewarder_pays_beside_a_second_deposit_is_income() -> None:
    entries = read(staked(), staked("0x2", asset("joe", "3", "6", "rewarder")))
    assert brief(entries[1:]) == {("deposit", "lp", 50, 50), ("income", "joe", 3, 6)}


def test_a_share_that_comes_from_another_contract_than_the_helper_is_a_share() -> None:
    opened = record("STAKE", [asset("sohm", "50", "50", "staking")], [asset("ohm", "50", "50", "helper")], hash="0x1")
    closed = record(
        "UNSTAKE", [asset("ohm", "60", "90", "staking")], [asset("sohm", "50", "50", "staking")], hash="0x2"
    )
    assert brief(read(opened)) == {("deposit", "ohm", 50, 50)}
    assert brief(read(opened, closed)[1:]) == {("withdraw", "ohm", 50, 75), ("income", "ohm", 10, 15)}


def test_the_last_payment_of_a_grant_is_income_and_its_collectible_is_worth_nothing() -> None:
    granted = record("TRANSFERIN", [grant(NOBODY)], hash="0x1", sender=OTHER)
    claimed = record("CLAIM", [asset("gear", "5", "10", POOL)], [grant(NOBODY)], hash="0x2")
    assert brief(read(granted, claimed)[1:]) == {("income", "gear", 5, 10), ("taken", "grant:7", 1, 0)}


@pytest.mark.parametrize(("type_", "symbol"), [("CLAIM", "gear"), ("MINT", "other")])
def test_a_bought_grant_is_sold_for_its_last_payment(type_: str, symbol: str) -> None:
    bought = record("SWAP", [grant("market")], [asset("usd", "1000", "1000", "market")], hash="0x1")
    claimed = record(type_, [asset(symbol, "5", "1200", POOL)], [grant(NOBODY)], hash="0x2")
    entries = read(bought, claimed)
    assert brief(entries[2:]) == {("buy", symbol, 5, 1200), ("sell", "grant:7", 1, 1200)}
    (gain,) = (each for each in gains_of(entries, "fifo").gains if each.asset == "chain:grant:7")
    assert (gain.proceeds, gain.cost) == (1200 * USD, 1000 * USD)


def test_a_claim_that_burns_a_request_returns_what_went_in() -> None:
    bought = record("STAKE", [asset("steth", "50", "50", NOBODY)], [asset("coin", "50", "50", "steth")], hash="0x1")
    request = record("INTERACTION", [grant(NOBODY)], [asset("steth", "20", "20", "grant")], hash="0x2")
    claimed = record("CLAIM", [asset("coin", "21", "42", "grant")], [grant(NOBODY)], hash="0x3")
    entries = [each for each in read(bought, request, claimed) if each.order == 2]
    assert {(kind, symbol, raw) for kind, symbol, raw, _ in brief(entries)} == {
        ("withdraw", "coin", 20),
        ("income", "coin", 1),
    }


def test_what_a_farm_pays_in_an_untyped_call_is_income_with_all_beside_it() -> None:
    payment = record(
        "TRANSFERIN", [asset("joe", "3", "6", "farm"), asset("op", "1", "2", "other")], hash="0x2", sender=OTHER
    )
    assert brief(read(staked(), payment)[1:]) == {("income", "joe", 3, 6), ("income", "op", 1, 2)}
    strange = record("TRANSFERIN", [asset("joe", "3", "6", "stranger")], hash="0x2", sender=OTHER)
    assert brief(read(staked(), strange)[1:]) == {("received", "joe", 3, 6)}


def test_the_staked_asset_from_its_farm_is_no_reward() -> None:
    payment = record("TRANSFERIN", [asset("lp", "50", "60", "farm")], hash="0x2", sender=OTHER)
    assert brief(read(staked(), payment)[1:]) == {("withdraw", "lp", 50, 60)}


def test_a_token_of_strangers_beside_a_claim_is_in_no_sum() -> None:
    payment = record(
        "TRANSFERIN", [asset("joe", "3", "6", "farm"), asset("bait", "9", "900", "farm")], hash="0x2", sender=OTHER
    )
    entries = read(staked(), payment, is_trusted=lambda contract: contract != "chain:bait")[1:]
    assert brief(entries) == {("income", "joe", 3, 6), ("unasked", "bait", 9, None)}


def test_a_share_that_is_burnt_in_an_untyped_call_pays_later() -> None:
    opened = record("DEPOSIT", [asset("share", "50", other=NOBODY)], [asset("eth", "50", "50", "share")], hash="0x1")
    burnt = record("INTERACTION", [], [asset("share", "20", other=NOBODY)], hash="0x2", recipient="share")
    payment = record("INTERACTION", [asset("eth", "22", "44", "share")], hash="0x3", recipient="share")
    entries = read(opened, burnt, payment)
    assert brief([each for each in entries if each.order == 1]) == set()
    assert {each[:3] for each in brief([each for each in entries if each.order == 2])} == {
        ("withdraw", "eth", 20),
        ("income", "eth", 2),
    }


@pytest.mark.parametrize(
    ("type_", "sender", "called"),
    [
        ("INTERACTION", ME, "bridge"),
        ("TRANSFEROUT", ME, "share"),
        ("TRANSFEROUT", OTHER, ME),
        ("TRANSFEROUT", OTHER, "relay"),
    ],
)
def test_a_share_that_another_contract_burns_is_disposed_of(type_: str, sender: str, called: str) -> None:
    opened = record("DEPOSIT", [asset("share", "50", other=NOBODY)], [asset("eth", "50", "50", "share")], hash="0x1")
    burnt = record(type_, [], [asset("share", "20", "30", NOBODY)], hash="0x2", sender=sender, recipient=called)
    entries = read(opened, burnt)[1:]
    assert brief(entries) == {("withdraw", "eth", 20, None), ("sent", "eth", 20, None if sender == OTHER else 30)}


def test_what_a_farm_lends_and_takes_back_is_no_income() -> None:
    lent = record("TRANSFERIN", [asset("dai", "30", "30", "farm")], hash="0x2", sender=OTHER)
    repaid = record("TRANSFEROUT", [], [asset("dai", "31", "31", "farm")], hash="0x3", sender=OTHER)
    assert brief([each for each in read(staked(), lent, repaid) if each.order == 1]) == {("received", "dai", 30, 30)}


def test_what_a_farm_pays_in_an_own_call_of_no_known_type_may_be_a_loan() -> None:
    lent = record("INTERACTION", [asset("dai", "30", "30", "farm")], hash="0x2")
    assert brief(read(staked(), lent)[1:]) == {("received", "dai", 30, 30)}


def test_a_farm_pays_income_to_a_contract_wallet_whose_owner_is_an_own_wallet() -> None:
    payment = record("TRANSFERIN", [asset("joe", "3", "6", "farm")], hash="0x2", sender=MINE)
    assert brief(read(staked(), payment)[1:]) == {("income", "joe", 3, 6)}


@pytest.mark.parametrize("type_", ["SPAM", "TRANSFEROUT"])
def test_a_transfer_of_nothing_by_strangers_leaves_rewards_income(type_: str) -> None:
    payment = record("TRANSFERIN", [asset("crv", "3", "30", "farm")], hash="0x3", sender=OTHER)
    forged = record(type_, [], [asset("crv", "0", "0", "farm")], hash="0x2", sender=OTHER)
    entries = read(staked(), forged, payment, forged)
    assert ("income", "crv", 3, 30) in brief(entries)


def test_a_later_deposit_of_a_reward_leaves_earlier_rewards_income() -> None:
    first_payment, second_payment = (
        record("TRANSFERIN", [asset("crv", "3", "30", "farm")], hash=hash, sender=OTHER) for hash in ("0x2", "0x4")
    )
    deposit = record("STAKE", [], [asset("crv", "2", "20", "farm")], hash="0x3")
    assert [
        (each.kind, each.quantity)
        for each in read(staked(), first_payment, deposit, second_payment)
        if each.order in (1, 3)
    ] == [
        ("income", 3),
        ("withdraw", 2),
        ("income", 1),
    ]


def test_what_a_contract_of_orders_pays_is_no_income() -> None:
    orders = [
        record("INTERACTION", [], [asset("usd", "100", "100", "dca")], hash="0x1", recipient="dca"),
        record("INTERACTION", [asset("usd", "100", "100", "dca")], [], hash="0x2", recipient="dca"),
        record("INTERACTION", [], [asset("usd", "1000", "1000", "dca")], hash="0x3", recipient="dca"),
    ]
    payment = record("TRANSFERIN", [asset("weth", "1", "1000", "dca")], hash="0x4", sender=OTHER, recipient="dca")
    entries = [each for each in read(*orders, payment) if each.order > 1]
    assert brief(entries) == {("sent", "usd", 1000, 1000), ("received", "weth", 1, 1000)}


@pytest.mark.parametrize(("type_", "kind"), [("DEPOSIT", "received"), ("STAKE", "income")])
def test_only_contracts_of_staked_shares_pay_rewards(type_: str, kind: str) -> None:
    opened = record(type_, [asset("pair", "5", other=NOBODY)], [asset("usd", "100", "100", "pair")], hash="0x1")
    payment = record("TRANSFERIN", [asset("weth", "2", "2000", "pair")], hash="0x2", sender=OTHER, recipient="dca")
    assert brief(read(opened, payment)[1:]) == {(kind, "weth", 2, 2000)}


def test_what_is_minted_after_a_burnt_deposit_is_no_reward() -> None:
    burnt = record("STAKE", [], [asset("bnt", "100", "100", NOBODY)], hash="0x1")
    minted = record("TRANSFERIN", [asset("usd", "5", "5", NOBODY)], hash="0x2", sender=OTHER)
    assert brief(read(burnt, minted)[1:]) == {("received", "usd", 5, 5)}


def test_a_forged_stake_makes_no_contract_pay_rewards() -> None:
    forged = record("STAKE", [], [asset("bait", "1", "1", "dca")], hash="0x1", sender=OTHER, recipient="evil")
    payment = record("TRANSFERIN", [asset("weth", "1", "1000", "dca")], hash="0x2", sender=OTHER, recipient="dca")
    entries = read(forged, payment, is_trusted=lambda contract: contract != "chain:bait")
    assert ("received", "weth", 1, 1000) in brief(entries)
