"""Changes of vaults count by logs of named contracts, for own vaults and exact amounts alone."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from chainfolio.adapters.evm.events import TRANSFER
from chainfolio.adapters.evm.protocols.maker import (
    FROB,
    MANAGED,
    MOVE,
    RAY,
    SAVINGS,
    SLIP,
    savings_changes,
    vault_changes,
)
from chainfolio.portfolio.pnl.record_kinds import UNREAD_CHANGES
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from chainfolio.portfolio.pnl.vaults import typed_by_vaults
from chainfolio.position_changes import EventLog, VaultChange
from tests.portfolio.test_pnl_records import ME, NOBODY, OTHER, POOL, asset, brief, record

VAT, MANAGER, DAI, POT, FAKE = ("0x" + digit * 40 for digit in "12345")
ILK, URN, PROXY, ZERO = "0x" + "41" * 32, "0x" + "6" * 64, "0x" + "7" * 64, "0x" + "0" * 64
CONTRACTS = {"vat": (VAT,), "cdp_manager": (MANAGER,), "dai": (DAI,), "pot": (POT,)}
TREATMENT = Treatment(burn_addresses={NOBODY})


def frob(collateral: int, *, contract: str = VAT, source: str = PROXY) -> EventLog:
    call = bytes(64) + bytes(4) + bytes(4 * 32) + collateral.to_bytes(32, "big", signed=True) + bytes(60)
    return EventLog(contract, (FROB, ILK, URN, source), call)


def created(raw: int, *, contract: str = DAI) -> EventLog:
    return EventLog(contract, (TRANSFER, ZERO, PROXY), raw.to_bytes(32, "big"))


def destroyed(raw: int) -> EventLog:
    return EventLog(DAI, (TRANSFER, PROXY, ZERO), raw.to_bytes(32, "big"))


def move(source: str, target: str, raw: int) -> EventLog:
    return EventLog(VAT, (MOVE, source, target, f"0x{raw * RAY:064x}"), b"")


def loan(collateral: int, raw: int) -> VaultChange:
    return VaultChange("loan", VAT, ILK + URN[2:], collateral, DAI, raw)


def test_a_change_has_the_collateral_and_the_created_token() -> None:
    assert vault_changes([frob(5), created(9), destroyed(2)], CONTRACTS) == [loan(5, 7)]
    assert vault_changes([frob(5), frob(-6), destroyed(2)], CONTRACTS) == [loan(-1, -2)]


def test_logs_of_contracts_that_no_file_names_are_no_changes() -> None:
    forged = [frob(5, contract=FAKE), created(9, contract=FAKE), EventLog(FAKE, (MANAGED, PROXY, URN, ZERO), b"")]
    assert vault_changes(forged, CONTRACTS) == []
    assert savings_changes([EventLog(FAKE, (sorted(SAVINGS)[0], PROXY, ZERO, ZERO), b"")], CONTRACTS) == []
    assert vault_changes([frob(5), created(9, contract=FAKE)], CONTRACTS) == [loan(5, 0)]


def test_a_module_that_exchanges_stable_currencies_has_no_owner() -> None:
    exchanged = [frob(5, source=URN), created(5)]
    assert vault_changes(exchanged, CONTRACTS) == []
    managed = EventLog(MANAGER, (MANAGED, PROXY, ZERO, ZERO), b"")
    assert vault_changes([*exchanged, managed], CONTRACTS) == [loan(5, 5)]


def test_a_join_without_a_change_of_a_vault_is_of_its_owner() -> None:
    slip = EventLog(VAT, (SLIP, ILK, URN, "0x" + "0" * 63 + "5"), b"")
    assert vault_changes([slip], CONTRACTS) == [loan(5, 0)]
    transfer = move(PROXY, URN, 9)
    assert vault_changes([transfer, created(9)], CONTRACTS) == [VaultChange("balance", VAT, PROXY, 0, DAI, 9)]
    assert vault_changes([transfer, destroyed(9)], CONTRACTS) == [VaultChange("balance", VAT, URN, 0, DAI, -9)]
    saved = EventLog(POT, (sorted(SAVINGS)[0], PROXY, ZERO, ZERO), b"")
    assert vault_changes([transfer, saved, destroyed(9)], CONTRACTS) == []


def test_dai_that_passes_through_a_contract_is_no_balance_of_it() -> None:
    usds_join, converter, dai_join = (f"0x{digit * 64}" for digit in "abc")
    [change] = vault_changes([move(usds_join, converter, 9), move(converter, dai_join, 9), created(9)], CONTRACTS)
    assert (change.vault, change.raw) == (usds_join, 9)
    transfers = [move(PROXY, dai_join, 4), move(URN, dai_join, 5), created(9)]
    assert [(each.vault, each.raw) for each in vault_changes(transfers, CONTRACTS)] == [(PROXY, 4), (URN, 5)]
    assert vault_changes([move(PROXY, URN, 9)], CONTRACTS) == []


def test_savings_are_of_the_holder_that_the_pot_noted() -> None:
    notes = [EventLog(POT, (topic, PROXY, ZERO, ZERO), b"") for topic in sorted(SAVINGS)]
    assert savings_changes([*notes, destroyed(8)], CONTRACTS) == [VaultChange("savings", POT, PROXY, 0, DAI, -8)]


# --- types ----------------------------------------------------------------------------------------------------------


def typed(*cases: tuple[TransactionRecord, list[VaultChange] | None]) -> tuple[list[str], set[str]]:
    """Return the types that records get, and the transactions whose gains are not known."""
    changes = {("chain", each.hash): change for each, change in cases}
    records, unread = typed_by_vaults([each for each, _ in cases], changes, [ME], TREATMENT)
    return [each.type for each in records], {tx_hash for _, tx_hash in unread}


def change(collateral: int, raw: int) -> list[VaultChange]:
    """A change of a vault whose collateral `a` has no decimals, as all assets of these records."""
    return [VaultChange("loan", VAT, URN, collateral * 10**18, "b", raw)]


OPENED = record("SWAP", [asset("b", "9", other=NOBODY)], [asset("a", "5", other=POOL)], hash="0x1")


def test_collateral_and_debt_give_the_type() -> None:
    repaid = record("SWAP", [asset("a", "5", other=POOL)], [asset("b", "9", other=POOL)], hash="0x2")
    locked = record("INTERACTION", [], [asset("a", "5", other=POOL)], hash="0x3")
    freed = record("TRANSFERIN", [asset("a", "5", other=POOL)], [], hash="0x4")
    cases = [(OPENED, change(5, 9)), (repaid, change(-5, -9)), (locked, change(5, 0)), (freed, change(-5, 0))]
    assert typed(*cases) == (["BORROW", "REPAYVAULT", "DEPOSIT", "WITHDRAW"], set())


def test_a_drawn_token_is_a_loan_and_its_collateral_is_no_sale() -> None:
    records, _ = typed_by_vaults([OPENED], {("chain", "0x1"): change(5, 9)}, [ME], TREATMENT)
    assert {(kind, name, raw) for kind, name, raw, _ in brief(entries_of(records, [ME], TREATMENT).entries)} == {
        ("borrow", "b", 9),
        ("deposit", "a", 5),
    }


def test_a_stranger_who_pays_with_a_loan_of_its_own_changes_nothing() -> None:
    payment = record("TRANSFERIN", [asset("b", "9", other=NOBODY)], [], sender=OTHER, hash="0x1")
    assert typed((payment, change(5, 9))) == (["TRANSFERIN"], set())
    assert typed((payment, change(0, 9))) == (["TRANSFERIN"], set())


def test_others_may_send_transactions_of_a_vault_with_own_collateral() -> None:
    drawn = record("TRANSFERIN", [asset("b", "4", other=NOBODY)], [], sender=OTHER, hash="0x2")
    assert typed((OPENED, change(5, 9)), (drawn, change(0, 4))) == (["BORROW", "BORROW"], set())
    second = msgspec.structs.replace(OPENED, hash="0x3")
    proxy_change = [replace(change(5, 9)[0], vault=PROXY)]
    cases = [(OPENED, change(5, 9)), (second, proxy_change), (drawn, change(0, 4))]
    assert typed(*cases) == (["BORROW", "BORROW", "BORROW"], set())


def test_other_amounts_than_the_wallet_moved_make_the_vault_unknown_from_then_on() -> None:
    borrowed_more = record("INTERACTION", [], [], hash="0x2")
    closed = record("SWAP", [asset("a", "7", other=POOL)], [asset("b", "9", other=POOL)], hash="0x3")
    cases = [(OPENED, change(5, 9)), (borrowed_more, change(2, 4)), (closed, change(-7, -9))]
    assert typed(*cases) == (["BORROW", "INTERACTION", "SWAP"], {"0x2", "0x3"})


def test_a_trade_in_the_same_transaction_several_vaults_or_unread_logs_are_not_known() -> None:
    traded = record("SWAP", [asset("c", "9", other=POOL)], [asset("a", "5", other=POOL)], hash="0x1")
    assert typed((traded, change(5, 9))) == (["SWAP"], {"0x1"})
    assert typed((OPENED, [*change(5, 9), VaultChange("savings", POT, PROXY, 0, "b", 9)])) == (["SWAP"], {"0x1"})
    assert typed((OPENED, None)) == (["SWAP"], {"0x1"})
    result = entries_of([traded], [ME], TREATMENT, {("chain", "0x1"): None})
    assert {entry.reason for entry in result.entries} == {UNREAD_CHANGES}


def test_without_changes_nothing_is_different() -> None:
    assert typed((OPENED, [])) == (["SWAP"], set())
    assert typed_by_vaults([OPENED], {}, [ME], TREATMENT) == ([OPENED], set())
