"""Entries of transaction records: purchases, sales, deposits, loans, moves, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.pnl.entries import MONEY_DIGITS, NEVER_DEPOSITED, Entry
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.record_rows import NO_AMOUNT, Treatment
from chainfolio.portfolio.pnl.records import BRIDGED, NO_FEE_PRICE, OF_OTHERS, entries_of
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord, record_of
from chainfolio.portfolio.transactions import (
    NamedEntity,
    Nft,
    TransactionAssetDocument,
    TransactionDocument,
    TransactionUser,
)

ME, MINE, OTHER, POOL, NOBODY = "me", "mine", "other", "pool", "nobody"
USD = 10**MONEY_DIGITS


def asset(symbol: str, amount: str, value: str = UNKNOWN, other: str = OTHER, **more: Any) -> TransactionAssetDocument:
    facts = {
        "symbol": symbol,
        "name": symbol,
        "balance": amount,
        "price": UNKNOWN,
        "value": value,
        "contract": symbol,
        "chain_contract": f"chain:{symbol}",
        "chain_key": "chain",
        "decimal": "0",
        "sender": other,
        "recipient": other,
        "is_asset_in": True,
    }
    return TransactionAssetDocument(**{**facts, **more})


def transaction(
    type_: str,
    came: Sequence[TransactionAssetDocument] = (),
    left: Sequence[TransactionAssetDocument] = (),
    fee: tuple[str, str] = ("0", "0"),
    **more: Any,
) -> TransactionDocument:
    facts = {
        "hash": "0x1",
        "timestamp": "1600000000",
        "block_number": 1,
        "chain": NamedEntity(key="chain", name="Chain"),
        "sender": ME,
        "recipient": POOL,
        "type": type_,
        "value": "0",
        "value_fiat": "0",
        "fees": fee[0],
        "fees_fiat": fee[1],
        "native_asset_fees": asset("coin", fee[0], fee[1]),
        "assets_in": tuple(came),
        "assets_out": tuple(left),
        "user": TransactionUser(address=ME),
    }
    return TransactionDocument(**{**facts, **more})


def record(*args: Any, **more: Any) -> TransactionRecord:
    return record_of(transaction(*args, **more))


def read(*records: TransactionRecord, own_wallets: Sequence[str] = (ME, MINE), **treatment: Any) -> list[Entry]:
    return entries_of(records, own_wallets, Treatment(burn_addresses={NOBODY}, **treatment)).entries


def brief(entries: Sequence[Entry]) -> set[tuple[str, str, int, int | None]]:
    """Kind, asset, quantity, and whole USD."""
    return {
        (each.kind, each.asset.removeprefix("chain:"), each.quantity, each.value and each.value // USD)
        for each in entries
    }


def test_a_swap_sells_and_buys_and_its_fee_is_part_of_the_cost() -> None:
    entries = read(record("SWAP", [asset("a", "5", "50")], [asset("b", "7", "49")], ("2", "3")))
    assert brief(entries) == {("buy", "a", 5, 50), ("sell", "b", 7, 50), ("fee", "coin", 2, 3)}
    assert {each.kind: each.fee // USD for each in entries} == {"buy": 3, "sell": 0, "fee": 0}


@pytest.mark.parametrize(("bought", "sold", "values"), [(UNKNOWN, "49", (49, 49)), ("50", UNKNOWN, (50, 50))])
def test_what_has_no_price_is_worth_what_it_was_swapped_for(
    bought: str, sold: str, values: tuple[int | None, int | None]
) -> None:
    entries = read(record("SWAP", [asset("a", "5", bought)], [asset("b", "7", sold)]))
    assert brief(entries) == {("buy", "a", 5, values[0]), ("sell", "b", 7, values[1])}


def test_a_swap_without_any_price_has_no_values() -> None:
    entries = read(record("SWAP", [asset("a", "5")], [asset("b", "7")]))
    assert brief(entries) == {("buy", "a", 5, None), ("sell", "b", 7, None)}


def test_a_fee_without_a_price_makes_the_cost_unknown_and_says_why() -> None:
    entries = read(record("SWAP", [asset("a", "5", "50")], [asset("b", "7", "49")], ("2", UNKNOWN)))
    assert [(each.value, each.reason) for each in entries if each.kind == "buy"] == [(None, NO_FEE_PRICE)]


def test_what_came_and_left_of_one_asset_counts_by_the_difference() -> None:
    entries = read(record("SWAP", [asset("a", "5", "50"), asset("b", "3", "30")], [asset("b", "7", "70")]))
    assert brief(entries) == {("buy", "a", 5, 50), ("sell", "b", 4, 50)}


def test_deposits_and_their_shares_are_neither_sold_nor_bought() -> None:
    entries = read(
        record("DEPOSIT", [asset("share", "9", other=NOBODY)], [asset("a", "5", "50", POOL)]),
        record("WITHDRAW", [asset("a", "6", "66", POOL)], [asset("share", "9", other=NOBODY)], hash="0x2"),
    )
    assert brief(entries) == {("deposit", "a", 5, 50), ("withdraw", "a", 5, 55), ("income", "a", 1, 11)}


def test_who_redeems_shares_that_he_bought_sells_them_for_what_they_pay_and_earns_no_income() -> None:
    bought = record("SWAP", [asset("share", "9", "90")], [asset("b", "90", "90")], hash="0x1")
    redeemed = record("WITHDRAW", [asset("a", "100", "110", POOL)], [asset("share", "9", other=NOBODY)], hash="0x2")
    assert brief(read(bought, redeemed)) == {
        ("buy", "share", 9, 90),
        ("sell", "b", 90, 90),
        ("sell", "share", 9, 110),
        ("buy", "a", 100, 110),
    }
    gains = gains_of(read(bought, redeemed), "fifo").gains
    assert [(gain.kind, gain.asset, gain.gain) for gain in gains if gain.asset.endswith("share")] == [
        ("sell", "chain:share", 20 * USD)
    ]


def test_of_shares_some_of_which_were_bought_those_of_deposits_are_given_back_first() -> None:
    entries = read(
        record("DEPOSIT", [asset("share", "6", other=NOBODY)], [asset("a", "60", "60", POOL)], hash="0x1"),
        record("TRANSFERIN", [asset("share", "4", "40")], sender=OTHER, hash="0x2"),
        record("WITHDRAW", [asset("a", "80", "160", POOL)], [asset("share", "8", other=NOBODY)], hash="0x3"),
    )
    assert brief(entries[2:]) == {("sell", "share", 2, 40), ("buy", "a", 20, 40), ("withdraw", "a", 60, 120)}


def test_shares_that_grew_are_the_deposit_with_its_interest_and_none_of_them_is_sold() -> None:
    entries = read(
        record("DEPOSIT", [asset("share", "100", other=NOBODY)], [asset("a", "100", "100", POOL)], hash="0x1"),
        record("WITHDRAW", [asset("a", "103", "103", POOL)], [asset("share", "103", other=NOBODY)], hash="0x2"),
    )
    assert brief(entries) == {("deposit", "a", 100, 100), ("withdraw", "a", 100, 100), ("income", "a", 3, 3)}
    assert [(gain.kind, gain.gain) for gain in gains_of(entries, "fifo").gains] == [("income", 3 * USD)]


def test_what_comes_beside_a_deposit_is_a_reward_and_beside_liquidity_what_that_may_have_become() -> None:
    stake = record("STAKE", [], [asset("lp", "5", "50", POOL)], hash="0x1")
    for type_, kind in (("WITHDRAW", "income"), ("UNSTAKE", "income"), ("REMOVELIQUIDITY", "withdraw")):
        back = record(type_, [asset("lp", "5", "50", POOL), asset("reward", "2", "8", POOL)], hash="0x2")
        assert brief(read(stake, back)[1:]) == {("withdraw", "lp", 5, 50), (kind, "reward", 2, 8)}


@pytest.mark.parametrize("type_", ["WITHDRAW", "UNSTAKE", "REMOVELIQUIDITY", "CLOSEVAULT"])
def test_what_comes_back_and_was_never_deposited_is_no_income_and_its_cost_is_not_known(type_: str) -> None:
    entries = read(record(type_, [asset("a", "32", "64000", POOL)]))
    gains = gains_of(entries, "fifo")
    assert gains.gains == []
    assert [(lots.quantity, lots.cost, lots.reason) for lots in gains.remaining] == [(32, None, NEVER_DEPOSITED)]


def test_per_wallet_what_one_wallet_deposited_and_another_gets_back_moves_with_its_lots() -> None:
    entries = read(
        record("TRANSFERIN", [asset("a", "10", "10")], sender=OTHER, hash="0x1"),
        record("DEPOSIT", [asset("share", "10", other=NOBODY)], [asset("a", "10", "10", POOL)], hash="0x2"),
        record("TRANSFEROUT", [], [asset("share", "10", "10", MINE)], hash="0x3"),
        record(
            "WITHDRAW",
            [asset("a", "11", "22", POOL)],
            [asset("share", "10", other=NOBODY)],
            hash="0x4",
            user=TransactionUser(address=MINE),
        ),
    )
    gains = gains_of(entries, "fifo", per_wallet=True)
    assert [(gain.kind, gain.wallet, gain.gain) for gain in gains.gains] == [("income", MINE, 2 * USD)]
    lots_by_wallet = {each.wallet: (each.quantity, each.cost) for each in gains.remaining if each.asset == "chain:a"}
    assert lots_by_wallet == {ME: (0, 0), MINE: (11, 12 * USD)}


def test_deposits_are_disposals_where_the_owner_says_so() -> None:
    entries = read(
        record("DEPOSIT", [asset("share", "9", other=NOBODY)], [asset("a", "5", "50", POOL)]),
        deposits_are_disposals=True,
    )
    assert brief(entries) == {("sell", "a", 5, 50), ("buy", "share", 9, 50)}


def test_a_loan_is_borrowed_and_paid_back_and_the_token_of_its_debt_is_nothing_held() -> None:
    entries = read(
        record("BORROW", [asset("a", "5", "50", POOL), asset("debt", "5", other=NOBODY)]),
        record("REPAYVAULT", [], [asset("a", "6", "66", POOL), asset("debt", "5", other=NOBODY)], hash="0x2"),
    )
    assert brief(entries) == {("borrow", "a", 5, 50), ("repay", "a", 6, 66)}
    minted = read(record("BORROW", [asset("dai", "5", "5", NOBODY)]))
    assert brief(minted) == {("borrow", "dai", 5, 5)}


@pytest.mark.parametrize("type_", ["CLAIM", "AIRDROP", "COLLECT", "MINT"])
def test_what_is_claimed_or_given_away_to_all_is_income(type_: str) -> None:
    assert brief(read(record(type_, [asset("a", "5", "50")]))) == {("income", "a", 5, 50)}


def test_what_a_stake_earned_and_keeps_is_income_once_and_no_income_when_it_is_taken_out() -> None:
    reward = record("COLLECT", [asset("a", "5", "50", POOL, stays_staked=True)], sender=POOL)
    withdrawal = record("UNSTAKE", [asset("a", "5", "60", POOL)], hash="0x2", timestamp="1600000001")
    entries = read(reward, withdrawal)
    assert brief(entries) == {("income", "a", 5, 50), ("deposit", "a", 5, 50), ("withdraw", "a", 5, 60)}
    gains = gains_of(entries, "fifo")
    assert [(each.kind, each.quantity, (each.gain or 0) // USD) for each in gains.gains] == [("income", 5, 50)]
    assert [(each.quantity, (each.cost or 0) // USD, each.deposited) for each in gains.remaining] == [(5, 50, 0)]
    full_withdrawal = record("UNSTAKE", [asset("a", "9", "90", POOL)], hash="0x2", timestamp="1600000001")
    result = gains_of(read(reward, full_withdrawal), "fifo")
    assert [(each.kind, each.quantity) for each in result.gains] == [("income", 5)], "what others staked is no income"
    assert [(each.quantity, each.cost, each.reason) for each in result.remaining] == [(9, None, NEVER_DEPOSITED)]
    sold = read(reward, withdrawal, deposits_are_disposals=True)
    assert brief(sold) == {("income", "a", 5, 50), ("sent", "a", 5, 50), ("received", "a", 5, 60)}


def test_what_others_send_costs_its_value_or_is_unknown_as_the_owner_says() -> None:
    transfer = record("TRANSFERIN", [asset("a", "5", "50")], sender=OTHER)
    assert brief(read(transfer)) == {("received", "a", 5, 50)}
    (unknown,) = read(transfer, received_at_spot=False)
    assert (unknown.value, unknown.reason) == (None, OF_OTHERS)


def test_what_crosses_a_bridge_is_no_disposal_and_arrives_at_an_unknown_cost() -> None:
    entries = read(
        record("BRIDGEOUT", [], [asset("a", "5", "50")]), record("BRIDGEIN", [asset("b", "5", "50")], hash="0x2")
    )
    assert [(each.kind, each.reason) for each in entries] == [("deposit", ""), ("received", BRIDGED)]


def test_a_move_between_own_wallets_is_told_once_though_both_have_a_record() -> None:
    outgoing = record("TRANSFEROUT", [], [asset("a", "5", "50", MINE)], ("1", "2"))
    incoming = record("TRANSFERIN", [asset("a", "5", "50", ME)], user=TransactionUser(address=MINE))
    entries = read(outgoing, incoming)
    assert [(each.kind, each.wallet, each.to) for each in entries] == [("move", ME, MINE), ("fee", ME, "")]


def test_the_wrapped_coin_is_the_coin() -> None:
    wrap = record("WRAP", [asset("wcoin", "5", "50")], [asset("coin", "5", "50")], ("1", "10"))
    aliases = {"chain:wcoin": "chain:coin"}
    assert brief(read(wrap, aliases=aliases)) == {("fee", "coin", 1, 10)}
    swap = record("SWAP", [asset("wcoin", "5", "50")], [asset("a", "5", "50")], sender=OTHER, hash="0x2")
    assert brief(read(swap, aliases=aliases)) == {("buy", "coin", 5, 50), ("sell", "a", 5, 50)}
    for order in ([wrap, swap], [swap, wrap]):
        assert entries_of(order, [ME], Treatment(aliases=aliases)).facts["chain:coin"].symbol == "coin"


def test_of_spam_and_of_failed_transactions_only_the_own_fee_counts() -> None:
    spam = record("SPAM", [asset("bait", "5", "50")], sender=OTHER, fee=("9", "9"))
    failed = record("FAILED", fee=("2", "4"), hash="0x2")
    assert brief(read(spam, failed)) == {("fee", "coin", 2, 4)}


def test_what_has_no_decimals_is_an_issue_and_collectibles_are_told_apart() -> None:
    odd = asset("odd", UNKNOWN, decimal=UNKNOWN)
    nft = asset("nft", "1", nft=Nft(token_id="7"))
    result = entries_of([record("TRANSFERIN", [odd, nft])], [ME], Treatment())
    assert [(issue.subject, issue.reason) for issue in result.issues] == [("chain:odd", NO_AMOUNT)]
    assert [each.asset for each in result.entries] == ["chain:nft:7"]


def test_a_record_that_comes_twice_counts_once() -> None:
    swap = record("SWAP", [asset("a", "5", "50")], [asset("b", "7", "49")])
    assert read(swap, swap) == read(swap)
