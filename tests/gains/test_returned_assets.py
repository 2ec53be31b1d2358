"""Assets that a contract takes in a call of unknown type and returns are deposits."""

from __future__ import annotations

from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from tests.portfolio.test_pnl_records import ME, OTHER, asset, brief, read, record

VAULT = "vault"


def deposit_record(amount: str, hash: str = "0x1") -> TransactionRecord:
    return record("INTERACTION", left=[asset("a", amount, str(int(amount) * 10), VAULT)], hash=hash)


def returned(amount: str, sender: str = ME, hash: str = "0x9") -> TransactionRecord:
    return record("TRANSFERIN", [asset("a", amount, str(int(amount) * 20), VAULT)], sender=sender, hash=hash)


def test_what_a_contract_gave_back_in_full_was_deposited_and_the_rest_is_income() -> None:
    entries = read(
        deposit_record("5", "0x1"), deposit_record("3", "0x2"), returned("6", hash="0x8"), returned("4", hash="0x9")
    )
    assert brief(entries) == {
        ("deposit", "a", 5, 50),
        ("deposit", "a", 3, 30),
        ("withdraw", "a", 6, 120),
        ("withdraw", "a", 2, 40),
        ("income", "a", 2, 40),
    }


def test_what_a_contract_has_not_given_back_was_sent() -> None:
    assert brief(read(deposit_record("5"), returned("4"))) == {("sent", "a", 5, 50), ("received", "a", 4, 80)}


def test_a_new_deposit_leaves_the_returned_one_as_it_was() -> None:
    entries = read(deposit_record("5", "0x1"), returned("5", hash="0x2"), deposit_record("4", "0x3"))
    assert brief(entries) == {("deposit", "a", 5, 50), ("withdraw", "a", 5, 100), ("sent", "a", 4, 40)}


def test_what_somebody_pays_who_was_paid_before_is_no_deposit() -> None:
    assert brief(read(deposit_record("5"), returned("5", sender=VAULT))) == {
        ("sent", "a", 5, 50),
        ("received", "a", 5, 100),
    }
    payment = record("TRANSFEROUT", left=[asset("a", "5", "50", VAULT)])
    assert brief(read(payment, returned("5", sender=OTHER))) == {("sent", "a", 5, 50), ("received", "a", 5, 100)}


def test_if_deposits_are_sales_what_came_back_was_sold() -> None:
    entries = read(deposit_record("5"), returned("5"), deposits_are_disposals=True)
    assert brief(entries) == {("sent", "a", 5, 50), ("received", "a", 5, 100)}
