"""Operations of contract wallets: what their gas takes out of deposits, and whose fee it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.pnl.entries import Entry
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.operations import NO_PREPAID_GAS, with_operation_fees
from chainfolio.portfolio.pnl.record_rows import NO_AMOUNT, RecordEntries, Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from chainfolio.portfolio.transactions import TransactionAssetDocument
from chainfolio.position_changes import VaultChange
from tests.portfolio.test_pnl_records import ME, NOBODY, OTHER, asset, brief, record

ENTRY_POINT = "entry point"
TREATMENT = Treatment(burn_addresses={NOBODY}, gas_holders={ENTRY_POINT}, coins={"chain:coin": "COIN"})
BOUGHT = record("SWAP", [asset("coin", "100", "100")], [asset("eur", "100", "100")], hash="0xb", timestamp="1500000000")


def operation(
    number: int,
    cost: int,
    incoming: Sequence[TransactionAssetDocument] = (),
    prepaid: int = 0,
    fee: tuple[str, str] = ("7", "7"),
    **more: Any,
) -> TransactionRecord:
    """Return the record of an operation that a bundler sent, with its cost as the wallet's fee."""
    outgoing = [asset("coin", str(prepaid), str(prepaid), ENTRY_POINT)] if prepaid else []
    facts = {"hash": f"0x{number}", "timestamp": str(1_600_000_000 + number), "sender": "bundler", **more}
    document = record("UNDEFINED", incoming, outgoing, fee, **facts)
    change = VaultChange("gas", ENTRY_POINT, ME, None, "", -cost)
    return with_operation_fees([document], {("chain", f"0x{number}"): (change,)})[0]


def result(*records: TransactionRecord, treatment: Treatment = TREATMENT) -> RecordEntries:
    return entries_of(records, (ME,), treatment)


def coin_balance(entries: Sequence[Entry]) -> int:
    return sum(lots.quantity for lots in gains_of(entries, "fifo").remaining if lots.asset == "chain:coin")


def test_gas_without_a_known_deposit_takes_nothing_from_other_deposits() -> None:
    stake = record("STAKE", [], [asset("coin", "10", "10", "farm")], hash="0xs", timestamp="1500000001")
    unstake = record("UNSTAKE", [asset("coin", "10", "10", "farm")], [], hash="0xu", timestamp="1700000000")
    read = result(BOUGHT, stake, *(operation(number, 4) for number in range(3)), unstake)
    assert {(gain.kind, gain.asset, gain.quantity) for gain in gains_of(read.entries, "fifo").gains} == {
        ("sell", "chain:eur", 100),
        ("fee", "chain:coin", 4),
    }
    assert coin_balance(read.entries) == 88
    assert [(issue.subject, issue.reason) for issue in read.issues] == [(f"0x{n}", NO_PREPAID_GAS) for n in range(3)]


def test_gas_beyond_the_deposit_is_paid_by_the_wallet() -> None:
    read = result(BOUGHT, operation(1, 4, prepaid=6), operation(2, 4))
    assert brief(read.entries[2:]) == {
        ("deposit", "coin", 6, 6),
        ("fee", "coin", 4, 4),
        ("withdraw", "coin", 4, 4),
        ("withdraw", "coin", 2, 2),
    }
    assert (coin_balance(read.entries), [issue.subject for issue in read.issues]) == (92, ["0x2"])


def test_gas_that_its_deposit_pays_has_no_issue() -> None:
    read = result(BOUGHT, operation(1, 4, prepaid=6, incoming=[asset("token", "1", "5", OTHER)]))
    assert (coin_balance(read.entries), read.issues) == (96, [])


def test_tokens_of_strangers_beside_an_operation_are_not_trusted() -> None:
    treatment = replace(TREATMENT, is_trusted=lambda contract: contract != "chain:bait")
    bait = asset("bait", "1000", "900000")
    entries = result(BOUGHT, operation(1, 4, [bait], prepaid=4), treatment=treatment).entries
    assert ("unasked", "bait", 1000, None) in brief(entries)
    own_operation = operation(1, 4, [bait], prepaid=4, sender="own bundler")
    entries = entries_of([BOUGHT, own_operation], (ME, "own bundler"), treatment).entries
    assert ("received", "bait", 1000, 900_000) in brief(entries)


def test_gas_is_a_fee_also_if_the_fee_of_the_transaction_is_unknown() -> None:
    read = result(BOUGHT, operation(1, 4, prepaid=4, fee=(UNKNOWN, UNKNOWN)))
    assert ("fee", "coin", 4, None) in brief(read.entries)
    assert (coin_balance(read.entries), read.issues) == (96, [])


def test_gas_of_a_coin_without_known_decimals_has_an_issue() -> None:
    coin = asset("coin", "7", "7", decimal=UNKNOWN)
    read = result(BOUGHT, operation(1, 4, native_asset_fees=coin))
    assert {entry.kind for entry in read.entries} == {"buy", "sell"}
    assert [(issue.subject, issue.reason) for issue in read.issues] == [("chain:coin", NO_AMOUNT)]
