"""Tokens sent by strangers and logs of their contracts change no sum of gains, and hide none."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from chainfolio.contracts import GAIN_METHODS
from chainfolio.portfolio.pnl.entries import UNASKED, AssetFacts, Entry
from chainfolio.portfolio.pnl.gains import Gains
from chainfolio.portfolio.pnl.in_portfolio import account_gains, with_gains
from chainfolio.portfolio.pnl.in_transactions import transaction_gains
from chainfolio.portfolio.pnl.in_transactions import with_gains as with_gains_of
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.report import PnlDocument, document
from chainfolio.portfolio.pnl.transaction_records import record_of
from chainfolio.portfolio.transactions import TransactionDocument
from tests.portfolio import test_pnl_in_portfolio as held
from tests.portfolio.test_pnl_in_transactions import at
from tests.portfolio.test_pnl_records import ME, MINE, NOBODY, OTHER, USD, asset, brief

VOUCHED = {"chain:usd", "chain:coin"}
TREATMENT = Treatment(burn_addresses={NOBODY}, is_trusted=VOUCHED.__contains__)
FACTS = {f"chain:{symbol}": AssetFacts(symbol, 0) for symbol in ("usd", "coin", "bait")}


def entries(*records: TransactionDocument, own_wallets: Sequence[str] = (ME,)) -> list[Entry]:
    return entries_of(list(map(record_of, records)), own_wallets, TREATMENT).entries


def gains(*records: TransactionDocument, method: str = "fifo", per_wallet: bool = False) -> Gains:
    return gains_of(entries(*records, own_wallets=(ME, MINE)), method, per_wallet=per_wallet)


def report(*records: TransactionDocument, method: str = "fifo") -> PnlDocument:
    prices = {"chain:usd": Decimal(1), "chain:bait": Decimal(1000)}
    return document(gains(*records, method=method), FACTS, prices, method=method, addresses=[ME])


def transfer_in(number: int, symbol: str, amount: str, value: str, **more: Any) -> TransactionDocument:
    return at(number, "TRANSFERIN", [asset(symbol, amount, value)], [], **{"sender": OTHER, **more})


def transfer_out(number: int, symbol: str, amount: str, value: str, **more: Any) -> TransactionDocument:
    return at(number, "TRANSFEROUT", [], [asset(symbol, amount, value)], **{"sender": OTHER, **more})


FUNDED = transfer_in(0, "usd", "100", "100")
BOUGHT = at(1, "SWAP", [asset("bait", "10", "50")], [asset("usd", "50", "50")])


def test_what_strangers_send_and_log_is_no_acquisition_and_no_disposal() -> None:
    assert brief(entries(transfer_in(1, "bait", "7", "7000"))) == {("unasked", "bait", 7, None)}
    assert brief(entries(transfer_out(1, "bait", "7", "7000"))) == {("taken", "bait", 7, None)}
    assert brief(entries(at(1, "AIRDROP", [asset("bait", "7", "7000")], [], sender=OTHER))) == {
        ("unasked", "bait", 7, None)
    }
    donated = at(1, "DONATION", [], [asset("bait", "7", "7000")], sender=OTHER)
    assert brief(entries(donated)) == {("taken", "bait", 7, None)}


def test_what_the_owner_signed_and_what_somebody_vouches_for_counts_as_before() -> None:
    assert brief(entries(transfer_out(1, "bait", "7", "7000", sender=ME))) == {("sent", "bait", 7, 7000)}
    assert brief(entries(transfer_in(1, "usd", "7", "7"))) == {("received", "usd", 7, 7)}
    assert brief(entries(transfer_out(1, "usd", "7", "7"))) == {("sent", "usd", 7, 7)}


def test_in_an_order_that_others_settled_it_is_worth_what_came_or_left_for_it() -> None:
    sold = at(1, "SWAP", [asset("usd", "5", "5")], [asset("bait", "7", "7000")], sender=OTHER)
    assert brief(entries(sold)) == {("buy", "usd", 5, 5), ("sell", "bait", 7, 5)}
    bought = at(1, "SWAP", [asset("bait", "7", "7000")], [asset("usd", "5", "5")], sender=OTHER)
    assert brief(entries(bought)) == {("sell", "usd", 5, 5), ("buy", "bait", 7, 5)}
    forged = at(1, "SWAP", [asset("bait", "7", "7000")], [asset("hook", "5", "9000")], sender=OTHER)
    assert brief(entries(forged)) == {("unasked", "bait", 7, None), ("taken", "hook", 5, None)}


@pytest.mark.parametrize("method", GAIN_METHODS)
def test_no_sum_of_the_report_moves_whatever_strangers_send_and_log(method: str) -> None:
    sold = at(9, "SWAP", [asset("usd", "80", "80")], [asset("bait", "10", "80")])
    attack = [
        transfer_in(2, "bait", "1000", "900000"),
        transfer_out(3, "bait", "500", "800000"),
        transfer_in(4, "bait", "1", "1000"),
    ]
    honest, hostile = report(FUNDED, BOUGHT, sold, method=method), report(FUNDED, BOUGHT, *attack, sold, method=method)
    for name in ("open_pnl", "closed_pnl", "total_cost_basis", "income", "fees"):
        assert getattr(hostile, name) == getattr(honest, name) != "N/A"
        assert getattr(hostile.known, name) == getattr(honest.known, name)
    (bait,) = [each for each in hostile.holdings if each.symbol == "bait"]
    assert (bait.amount, bait.unasked, bait.short, bait.reason) == ("0", "501", "0", UNASKED)
    assert hostile.unknown == {UNASKED: 1}


@pytest.mark.parametrize("method", GAIN_METHODS)
def test_who_sells_what_strangers_sent_has_no_known_gain_of_it_and_keeps_the_sums(method: str) -> None:
    sold = at(9, "SWAP", [asset("usd", "80", "80")], [asset("bait", "12", "80")])
    records = (FUNDED, BOUGHT, transfer_in(2, "bait", "5", "5000"), sold)
    pnl = report(*records, method=method)
    parts = {
        (each.amount, each.gain, each.reason) for each in pnl.gains if each.kind == "sell" and each.symbol == "bait"
    }
    assert {amount for amount, gain, reason in parts if (gain, reason) == ("N/A", UNASKED)} == {"2"}
    assert pnl.closed_pnl == next(gain for _, gain, _ in parts if gain != "N/A")
    (bait,) = [each for each in pnl.holdings if each.symbol == "bait"]
    assert (bait.amount, bait.unasked) == ("0", "3")


@pytest.mark.parametrize("method", GAIN_METHODS)
def test_a_forged_disposal_takes_no_more_than_there_is(method: str) -> None:
    result = gains(
        FUNDED, BOUGHT, transfer_in(2, "bait", "5", "5000"), transfer_out(3, "bait", "10000", "1"), method=method
    )
    (bait,) = [each for each in result.remaining if each.asset == "chain:bait"]
    assert (bait.quantity, bait.unasked, bait.short) == (0, 0, 0)
    assert {gain.asset for gain in result.gains} == {"chain:usd"}


def test_what_came_unasked_moves_with_its_owner_from_wallet_to_wallet() -> None:
    moves = [at(n, "TRANSFEROUT", [], [asset("bait", raw, "1", MINE)]) for n, raw in ((3, "11"), (4, "1"))]
    result = gains(FUNDED, BOUGHT, transfer_in(2, "bait", "5", "5000"), *moves, per_wallet=True)
    bait = {
        each.wallet: (each.quantity, each.cost, each.unasked) for each in result.remaining if each.asset == "chain:bait"
    }
    assert bait == {ME: (0, 0, 3), MINE: (10, 50 * USD, 2)}


def test_shares_that_a_stranger_sent_are_sold_for_what_they_pay_and_gain_nothing_known() -> None:
    redeemed = at(3, "WITHDRAW", [asset("usd", "9", "9")], [asset("bait", "4", other=NOBODY)])
    pnl = report(FUNDED, transfer_in(2, "bait", "4", "4000"), redeemed)
    assert (pnl.closed_pnl, pnl.open_pnl) == ("0", "0")
    assert {(each.kind, each.gain, each.reason) for each in pnl.gains} == {("sell", "N/A", UNASKED)}


def test_a_withdrawal_that_a_stranger_logs_brings_nothing_known() -> None:
    forged = at(2, "WITHDRAW", [asset("bait", "7", "7000")], [asset("hook", "5", other=NOBODY)], sender=OTHER)
    (bait,) = gains(forged).remaining
    assert (bait.quantity, bait.cost, bait.unasked) == (0, 0, 7)


def test_transactions_of_strangers_have_no_cost_and_close_nothing() -> None:
    records = [FUNDED, BOUGHT, transfer_in(2, "bait", "5", "5000"), transfer_out(3, "bait", "3", "1")]
    read = entries(*records)
    gains_by_transaction = transaction_gains(read, gains_of(read, "fifo").gains, {})
    filled = [with_gains_of(each, gains_by_transaction) for each in records[2:]]
    assert [(each.closed_pnl, faults) for each, faults in filled] == [("0", {}), ("0", {})]
    assert filled[0][0].assets_in[0].total_cost_basis == "N/A"


def test_the_sums_of_a_portfolio_leave_out_what_strangers_sent_and_an_issue_says_so() -> None:
    account = held.lots(("USDC", 100 * 10**6, "90"), closed={"USDC": "7"})
    dai = held.KEYS["DAI"]
    bait = account.lots[held.KEYS["USDC"]]._replace(asset=dai, quantity=0, cost=0, unasked=5)
    account.lots[dai] = bait  # type: ignore[index]
    filled = with_gains(held.document({"USDC": 100 * 10**6, "DAI": 10**30}), account)  # the contract says what it likes
    assert (filled.total_cost_basis, filled.open_pnl, filled.closed_pnl) == ("90", "10", "7")
    assert held.asset_of(filled, symbol="dai").open_pnl == "N/A"
    assert held.issues(filled) == [(dai, f"its gain is not known: {UNASKED}")]


def test_dust_beside_what_was_bought_changes_neither_its_cost_nor_its_gain() -> None:
    account = held.lots(("USDC", 100 * 10**6, "90"))
    key = held.KEYS["USDC"]
    for dust in (1, 10**5, 10**12):
        account.lots[key] = account.lots[key]._replace(unasked=dust)  # type: ignore[index]
        filled = with_gains(held.document({"USDC": 100 * 10**6 + dust}), account)
        assert (filled.total_cost_basis, filled.open_pnl) == ("90", "10")
        assert held.issues(filled) == [(key, f"its gain is not known: {UNASKED}")]


def test_sales_of_what_strangers_sent_are_in_no_closed_sum_of_a_portfolio() -> None:
    sold = at(3, "SWAP", [asset("usd", "80", "80")], [asset("bait", "4", "80")])
    account = account_gains(gains(FUNDED, transfer_in(2, "bait", "5", "5000"), sold), {})
    assert account.closed == {}
