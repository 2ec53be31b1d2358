"""Loans and balances count for own accounts alone; each account has a balance in a core contract."""

from __future__ import annotations

import msgspec
import pytest

from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord, moved_asset
from chainfolio.portfolio.pnl.vaults import typed_by_vaults
from chainfolio.portfolio.transactions import TransactionUser
from chainfolio.position_changes import VaultChange
from tests.portfolio.test_pnl_records import NOBODY, OTHER, POOL, asset, record

ME, MINE, STRANGER = ("0x" + digit * 40 for digit in "abc")
CORE, MARKET = "0x" + "1" * 40, "0x" + "2" * 40
Case = tuple[TransactionRecord, list[VaultChange]]


def topic(account: str) -> str:
    return "0x" + "0" * 24 + account[2:]


def typed(*cases: Case, scam: str = "") -> tuple[list[str], set[str]]:
    """Return the types that records get, in order, and the transactions whose gains are not known."""
    numbered = [(f"0x{number}", *case) for number, case in enumerate(cases, start=1)]
    records = [msgspec.structs.replace(each, hash=tx_hash) for tx_hash, each, _ in numbered]
    treatment = Treatment(burn_addresses={NOBODY}, is_trusted=lambda contract: contract != f"chain:{scam}")
    changes = {("chain", tx_hash): of_case for tx_hash, _, of_case in numbered}
    result, unread = typed_by_vaults(records, changes, [ME, MINE], treatment)
    return [each.type for each in result], {tx_hash for _, tx_hash in unread}


def market(raw: int, account: str = ME) -> VaultChange:
    """A loan of `b` in a market that names the account."""
    return VaultChange("loan", MARKET, MARKET + topic(account)[2:], None, "b", raw)


def sub_account(raw: int, account: str) -> VaultChange:
    """A loan of `b` by an account that has all but the last byte of its owner."""
    return VaultChange("loan", MARKET, account[:40], None, "b", raw)


def balance(raw: int, account: str = ME) -> Case:
    """Dai that an own wallet draws from its balance in the core contract, or pays (negative)."""
    row = asset("b", str(abs(raw)), other=NOBODY)
    document = record(
        "MINT" if raw > 0 else "INTERACTION",
        [row] if raw > 0 else [],
        [row] if raw < 0 else [],
        sender=account,
        user=TransactionUser(address=account),
    )
    return document, [VaultChange("balance", CORE, topic(account), 0, "b", raw)]


def make_record(type_: str, asset_in: str = "", asset_out: str = "", sender: str = ME) -> TransactionRecord:
    """A record of ME. Movements are such as "b 50"."""
    incoming, outgoing = (
        [asset(symbol, amount, other=POOL) for symbol, amount in [each.split()]] if each else []
        for each in (asset_in, asset_out)
    )
    return record(type_, incoming, outgoing, sender=sender, user=TransactionUser(address=ME))


def vault_loan(raw: int, ilk: str = "41") -> Case:
    """A loan of own Dai that was drawn or repaid in the transaction that changed the vault of ME."""
    document, _ = balance(raw)
    return document, [VaultChange("loan", CORE, "0x" + ilk * 32 + topic(ME)[2:], 0, "b", raw)]


@pytest.mark.parametrize(
    "change", [market(50, STRANGER), sub_account(50, STRANGER)], ids=["market", "account of an owner"]
)
def test_a_swap_that_a_stranger_borrows_for_stays_a_swap(change: VaultChange) -> None:
    assert typed((make_record("SWAP", "b 50", "a 5"), [change])) == (["SWAP"], set())
    assert typed((make_record("SWAP", "c 7", "a 5"), [change])) == (["SWAP"], set())


def test_a_loan_of_an_own_account_counts_beside_one_of_a_stranger() -> None:
    borrowed = make_record("WITHDRAW", "b 50")
    assert typed((borrowed, [market(90, STRANGER), market(50)])) == (["BORROW"], set())
    assert typed((borrowed, [sub_account(90, STRANGER), sub_account(50, ME)])) == (["BORROW"], set())
    assert typed((make_record("LEND", asset_out="b 50"), [market(-50)])) == (["REPAYVAULT"], set())


def test_exactly_the_debt_of_another_account_is_not_known() -> None:
    assert typed((make_record("WITHDRAW", "b 50"), [market(50, STRANGER)])) == (["WITHDRAW"], {"0x1"})
    assert typed((make_record("LEND", asset_out="b 50"), [market(-50, STRANGER)])) == (["LEND"], {"0x1"})
    payment = make_record("TRANSFERIN", "b 50", sender=STRANGER)
    assert typed((payment, [market(50, STRANGER)])) == (["TRANSFERIN"], set())


def test_a_debt_that_is_the_same_afterwards_changes_no_type() -> None:
    assert typed((make_record("LEND", "s 5"), [market(0)])) == (["LEND"], set())
    assert typed((make_record("SWAP", "c 5", "a 5"), [market(0), market(0, STRANGER)])) == (["SWAP"], set())


def test_a_conversion_over_the_balance_of_a_contract_stays_a_swap() -> None:
    change = VaultChange("balance", CORE, topic(STRANGER), 0, "b", 50)
    assert typed((make_record("SWAP", "b 50", "usds 50"), [change])) == (["SWAP"], set())
    assert typed((make_record("MINT", "b 50"), [change])) == (["MINT"], {"0x1"})


def test_dai_that_is_drawn_after_a_repaid_loan_is_a_loan() -> None:
    types, unread = typed(balance(900), balance(-900), balance(-5), balance(1_000))
    assert (types, unread) == (["BORROW", "REPAYVAULT", "REPAYVAULT", "BORROW"], set())


def test_a_payment_far_beyond_the_loan_is_not_known() -> None:
    assert typed(balance(900), balance(-1_350)) == (["BORROW", "REPAYVAULT"], set())
    assert typed(balance(900), balance(-1_351), balance(7)) == (["BORROW", "INTERACTION", "MINT"], {"0x2", "0x3"})


def test_dai_that_was_paid_beyond_the_loan_may_come_back() -> None:
    types, unread = typed(balance(900), balance(-905), balance(5))
    assert (types, unread) == (["BORROW", "REPAYVAULT", "MINT"], {"0x3"})


def test_a_balance_belongs_to_one_account() -> None:
    types, unread = typed(balance(-500, MINE), balance(900), balance(500, MINE), balance(-900))
    assert (types, unread) == (["DEPOSIT", "BORROW", "WITHDRAW", "REPAYVAULT"], set())


def test_a_loan_of_the_same_account_is_repaid_by_itself() -> None:
    assert typed(vault_loan(900), balance(-900)) == (["BORROW", "REPAYVAULT"], set())
    types, unread = typed(balance(-500), vault_loan(900), vault_loan(-900), balance(500))
    assert (types, unread) == (["DEPOSIT", "BORROW", "REPAYVAULT", "WITHDRAW"], set())


def test_more_than_was_saved_is_not_known() -> None:
    types, unread = typed(balance(-500), balance(200), balance(301), balance(300))
    assert (types, unread) == (["DEPOSIT", "WITHDRAW", "MINT", "MINT"], {"0x3", "0x4"})


def test_a_transaction_without_a_known_type_changes_no_balance() -> None:
    left = moved_asset(asset("c", "1", other=POOL))
    mixed = msgspec.structs.replace(balance(900)[0], type="SWAP", assets_out=(left,), sender=ME)
    types, unread = typed((mixed, balance(900)[1]), balance(-900))
    assert (types, unread) == (["SWAP", "INTERACTION"], {"0x1", "0x2"})


def test_a_stranger_cannot_make_an_own_loan_unknown() -> None:
    supplied = make_record("LEND", asset_out="a 8"), [VaultChange("loan", MARKET, MARKET + topic(ME)[2:], None, "", 0)]
    borrowed, repaid = (
        (make_record("WITHDRAW", "b 5000"), [market(5_000)]),
        (make_record("LEND", asset_out="b 2000"), [market(-2_000)]),
    )
    attack = make_record("TRANSFERIN", "b 100", sender=STRANGER), [market(-11), market(100, STRANGER)]
    expected = ["LEND", "BORROW", "TRANSFERIN", "REPAYVAULT"], {"0x3"}
    assert typed(supplied, borrowed, attack, repaid) == expected
    scam = moved_asset(asset("scam", "1", other=OTHER))
    forged = msgspec.structs.replace(attack[0], type="SWAP", assets_out=(scam,))
    assert typed(supplied, borrowed, (forged, attack[1]), repaid, scam="scam") == (
        ["LEND", "BORROW", "SWAP", "REPAYVAULT"],
        {"0x3"},
    )


def test_a_loan_that_others_send_for_an_own_account_is_unknown_from_then_on() -> None:
    supplied = make_record("LEND", asset_out="a 8"), [VaultChange("loan", MARKET, MARKET + topic(ME)[2:], None, "", 0)]
    borrowed = make_record("TRANSFERIN", "b 40", sender=STRANGER), [market(50)]
    repaid = make_record("LEND", asset_out="b 50"), [market(-50)]
    assert typed(supplied, borrowed, repaid) == (["LEND", "TRANSFERIN", "LEND"], {"0x2", "0x3"})
