"""Shares that are given back and pay nothing yet: what they keep, and what a later payment is."""

from __future__ import annotations

import pytest

from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.requests import NO_PAYMENT
from tests.portfolio.test_pnl_records import ME, NOBODY, OTHER, asset, brief, record

TREATMENT = Treatment(burn_addresses={NOBODY})


@pytest.mark.parametrize(("content", "has_issue"), [("coin", True), ("dai", False)])
def test_a_share_of_the_coin_that_seems_to_pay_nothing_has_an_issue(content: str, has_issue: bool) -> None:
    lent = record("LEND", [asset("share", "50", other=NOBODY)], [asset(content, "10", "10", "share")], hash="0x1")
    back = record("WITHDRAW", [], [asset("share", "50", other="share")], hash="0x2", recipient="share")
    read = entries_of([lent, back], (ME,), TREATMENT)
    assert brief(read.entries) == {("deposit", content, 10, 10)}
    assert [(issue.subject, issue.reason) for issue in read.issues] == ([("0x2", NO_PAYMENT)] if has_issue else [])


def test_a_bought_share_that_seems_to_pay_nothing_has_an_issue() -> None:
    bought = record("SWAP", [asset("share", "5", "50")], [asset("eur", "1", "50")], hash="0x1")
    read = entries_of([bought, record("WITHDRAW", [], [asset("share", "5")], hash="0x2")], (ME,), TREATMENT)
    assert [gain.asset for gain in gains_of(read.entries, "fifo").gains] == ["chain:eur"]
    assert [(issue.subject, issue.reason) for issue in read.issues] == [("0x2", NO_PAYMENT)]


def test_bought_shares_of_a_cooldown_are_sold_for_their_part_of_each_payment() -> None:
    deposit = record(
        "DEPOSIT", [asset("susde", "90", other=NOBODY)], [asset("usde", "100", "100", "susde")], hash="0x1"
    )
    bought = record("SWAP", [asset("susde", "10", "11")], [asset("eur", "1", "11")], hash="0x2")
    cooldown = record("UNSTAKE", [], [asset("susde", "100", "120", NOBODY)], hash="0x3", recipient="susde")
    payments = [
        record("UNSTAKE", [asset("usde", raw, raw, "silo")], hash=f"0x{raw}", recipient="susde")
        for raw in ("113", "50", "63")
    ]
    at_once = entries_of([deposit, bought, cooldown, payments[0]], (ME,), TREATMENT).entries
    assert brief(at_once[4:]) == {
        ("sell", "susde", 10, 11),
        ("buy", "usde", 11, 11),
        ("withdraw", "susde", 10, None),
        ("withdraw", "usde", 100, 100),
        ("income", "usde", 2, 2),
    }
    in_parts = entries_of([deposit, bought, cooldown, *payments[1:]], (ME,), TREATMENT).entries
    assert brief(in_parts[4:]) == {
        ("sell", "susde", 5, 5),
        ("buy", "usde", 5, 5),
        ("withdraw", "susde", 5, None),
        ("withdraw", "usde", 45, 45),
        ("buy", "usde", 5, 5),
        ("withdraw", "usde", 55, 55),
        ("income", "usde", 3, 3),
    }
    for entries in (at_once, in_parts):
        gains = gains_of(entries, "fifo")
        assert [(lots.asset, lots.deposited) for lots in gains.remaining if lots.quantity] == [("chain:usde", 0)]


def test_bought_shares_alone_are_sold_for_the_whole_payment() -> None:
    bought = record("SWAP", [asset("susde", "15", "15")], [asset("eur", "1", "15")], hash="0x2")
    cooldown = record("UNSTAKE", [], [asset("susde", "10", "12", NOBODY)], hash="0x3", recipient="susde")
    payment = record("UNSTAKE", [asset("usde", "12", "12", "silo")], hash="0x4", recipient="susde")
    second_withdrawal = record(
        "WITHDRAW", [asset("usde", "6", "6", "susde")], [asset("susde", "5", "6", NOBODY)], hash="0x5"
    )
    entries = entries_of([bought, cooldown, payment, second_withdrawal], (ME,), TREATMENT).entries
    assert {each for each in brief(entries[2:]) if each[0] != "deposit"} == {
        ("sell", "susde", 10, 12),
        ("withdraw", "susde", 10, None),
        ("buy", "usde", 12, 12),
        ("sell", "susde", 5, 6),
        ("buy", "usde", 6, 6),
    }


@pytest.mark.parametrize("is_share", [False, True])
@pytest.mark.parametrize("has_deposit", [False, True])
def test_a_forged_payment_sells_no_waiting_shares(has_deposit: bool, is_share: bool) -> None:
    deposit = record("DEPOSIT", [asset("susde", "5", other=NOBODY)], [asset("usde", "5", "5", "susde")], hash="0x1")
    bought = record("SWAP", [asset("susde", "10", "10")], [asset("eur", "1", "10")], hash="0x2")
    cooldown = record("WITHDRAW", [], [asset("susde", "10", "12", NOBODY)], hash="0x3", recipient="susde")
    forged = record("TRANSFERIN", [asset("bait", "1", "1", "susde")], hash="0x4", sender=OTHER, recipient="evil")
    if is_share:
        forged = record("TRANSFERIN", [asset("susde", "1", "1")], hash="0x4", sender=OTHER, recipient="susde")
    payment = record("UNSTAKE", [asset("usde", "12", "12", "silo")], hash="0x5", recipient="susde")
    records = [bought, cooldown, *([deposit] if has_deposit else [])]
    treatment = Treatment(burn_addresses={NOBODY}, is_trusted=lambda contract: contract != "chain:bait")
    honest, hostile = (
        entries_of([*records, *extra_records, payment], (ME,), treatment).entries for extra_records in ([], [forged])
    )
    added = ("received", "susde", 1, 1) if is_share else ("unasked", "bait", 1, None)
    assert brief(hostile) == brief(honest) | {added}
    assert "sell" in {kind for kind, symbol, _, _ in brief(honest) if symbol == "susde"}


@pytest.mark.parametrize("kind", ["UNSTAKE", "CLAIM"])
def test_a_forged_payer_beside_a_real_coin_sells_no_waiting_shares(kind: str) -> None:
    bought = record("SWAP", [asset("susde", "15", "15")], [asset("eur", "1", "15")], hash="0x2")
    cooldown = record("UNSTAKE", [], [asset("susde", "10", "12", NOBODY)], hash="0x3", recipient="susde")
    assets = [asset("bait", "1", "1", "susde"), asset("usde", "1", "1", OTHER)]
    forged = record(kind, assets, hash="0x4", sender=OTHER, recipient=OTHER)
    treatment = Treatment(burn_addresses={NOBODY}, is_trusted=lambda contract: contract != "chain:bait")
    entries = entries_of([bought, cooldown, forged], (ME,), treatment).entries
    assert "susde" not in {symbol for kind, symbol, _, _ in brief(entries) if kind == "sell"}
