"""Any contract can log a position manager's events: no event counts for more than the movements."""

from __future__ import annotations

from chainfolio.portfolio.pnl.moved_positions import moved_positions
from chainfolio.portfolio.pnl.position_changes import SEVERAL_CHANGES
from chainfolio.portfolio.pnl.record_kinds import UNREAD_CHANGES
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.transactions import Nft
from chainfolio.position_changes import PositionChange
from tests.portfolio.test_pnl_records import ME, NOBODY, OTHER, POOL, asset, brief, record

HUGE = 10**30


def change(units: int, raw: int) -> PositionChange:
    return PositionChange("nft", 7, units, ("a", "b"), (raw, 0), POOL)


def test_forged_events_move_no_more_than_the_wallet_moved() -> None:
    nft = asset("nft", "1", other=NOBODY, nft=Nft(token_id="7"))
    opened = record("SWAP", [nft], [asset("a", "5", "50", POOL)], sender=OTHER, hash="0x1")
    collected = record("TRANSFERIN", [asset("a", "6", "60", POOL)], sender=OTHER, hash="0x2")
    changes = {
        ("chain", "0x1"): [change(1, HUGE)],
        ("chain", "0x2"): [change(-1, HUGE), change(0, HUGE)],
    }
    entries = entries_of([opened, collected], [ME], Treatment(burn_addresses={NOBODY}), changes).entries
    assert brief(entries) == {("deposit", "a", 5, 50), ("income", "a", 6, 60)}


def test_events_of_positions_of_others_change_nothing() -> None:
    payment = record("TRANSFERIN", [asset("a", "6", "60", POOL)], sender=OTHER)
    plain = entries_of([payment], [ME], Treatment(burn_addresses={NOBODY})).entries
    assert (
        entries_of([payment], [ME], Treatment(burn_addresses={NOBODY}), {("chain", "0x1"): [change(0, 6)]}).entries
        == plain
    )
    assert brief(plain) == {("received", "a", 6, 60)}


def test_changes_that_no_protocol_could_read_make_the_gains_of_their_assets_unknown() -> None:
    bought = record("SWAP", [asset("b", "1", "7", POOL)], [asset("c", "7", "7", POOL)], hash="0x0")
    opened = record("SWAP", [asset("nft", "1", other=NOBODY, nft=Nft(token_id="7"))], [asset("a", "5", "50", POOL)])
    result = entries_of([bought, opened], [ME], Treatment(burn_addresses={NOBODY}), {("chain", "0x1"): None})
    assert {(entry.asset, entry.reason) for entry in result.entries if entry.value is None} == {
        ("chain:a", UNREAD_CHANGES),
        ("chain:nft:7", UNREAD_CHANGES),
    }
    assert [(issue.subject, issue.reason) for issue in result.issues] == [("0x1", UNREAD_CHANGES)]


def v4_change(units: int, *, number: int = 7, pool: str = POOL) -> PositionChange:
    return PositionChange("nft", number, units, ("", ""), (0, 0), pool, has_amounts=False)


def test_only_the_first_holder_of_its_tokens_changes_a_position_without_amounts() -> None:
    nft = asset("nft", "1", other=NOBODY, nft=Nft(token_id="7"))
    opened = record("INTERACTION", [nft], [asset("a", "5", "50", POOL)], hash="0x1")
    spam = record("TRANSFERIN", [asset("s", "6", "60", OTHER)], sender=OTHER, hash="0x2")
    closed = record("INTERACTION", [asset("a", "6", "60", POOL)], hash="0x3")
    changes = {
        ("chain", "0x1"): [v4_change(9)],
        ("chain", "0x2"): [v4_change(-9, pool=OTHER)],
        ("chain", "0x3"): [v4_change(-9)],
    }
    entries = entries_of([opened, spam, closed], [ME], Treatment(burn_addresses={NOBODY}), changes).entries
    assert brief(entries) == {
        ("deposit", "a", 5, 50),
        ("received", "s", 6, 60),
        ("withdraw", "a", 5, 50),
        ("income", "a", 1, 10),
    }


def test_the_parts_of_several_positions_without_amounts_are_not_known() -> None:
    nfts = [asset("nft", "1", other=NOBODY, nft=Nft(token_id=number)) for number in ("7", "8")]
    opened = record("INTERACTION", nfts, [asset("a", "5", "50", POOL)], hash="0x1")
    closed = record("INTERACTION", [asset("a", "6", "60", POOL)], hash="0x2")
    changes = {
        ("chain", "0x1"): [v4_change(9), v4_change(9, number=8)],
        ("chain", "0x2"): [v4_change(-9), v4_change(-9, number=8)],
    }
    result = entries_of([opened, closed], [ME], Treatment(burn_addresses={NOBODY}), changes)
    assert [(issue.subject, issue.reason) for issue in result.issues] == [
        ("0x1", SEVERAL_CHANGES),
        ("0x2", SEVERAL_CHANGES),
    ]
    assert {(entry.kind, entry.asset, entry.quantity, entry.value) for entry in result.entries} == {
        ("deposit", "chain:a", 5, None),
        ("withdraw", "chain:a", 5, None),
        ("income", "chain:a", 1, None),
    }


def test_liquidity_without_amounts_is_bought_and_sold_if_it_counts_as_a_disposal() -> None:
    nft = asset("nft", "1", other=NOBODY, nft=Nft(token_id="7"))
    opened = record("INTERACTION", [nft], [asset("a", "5", "50", POOL)], hash="0x1")
    payment = record("INTERACTION", [asset("a", "1", "10", POOL)], hash="0x2")
    closed = record("INTERACTION", [asset("a", "6", "60", POOL)], hash="0x3")
    changes = {("chain", f"0x{number}"): [v4_change(units)] for number, units in ((1, 9), (2, 0), (3, -9))}
    treatment = Treatment(burn_addresses={NOBODY}, liquidity_is_disposal=True)
    result = entries_of([opened, payment, closed], [ME], treatment, changes)
    assert brief(result.entries) == {
        ("sell", "a", 5, 50),
        ("buy", "nft:7", 9, 50),
        ("income", "a", 1, 10),
        ("buy", "a", 6, 60),
        ("sell", "nft:7", 9, 60),
    }
    assert result.issues == []


def test_a_bought_position_has_the_liquidity_that_was_removed_before_it_was_burnt() -> None:
    received_nft, burnt_nft = (
        asset("nft", "1", other=counterparty, nft=Nft(token_id="7")) for counterparty in (OTHER, NOBODY)
    )
    bought = record("SWAP", [received_nft], [asset("a", "5", "50")], hash="0x1")
    burnt = record("SWAP", [asset("a", "6", "60", POOL)], [burnt_nft], hash="0x2")
    changes = {("chain", "0x2"): [change(-9, 6)]}
    result = moved_positions([bought, burnt], changes, [ME], Treatment(burn_addresses={NOBODY}))
    assert result.bought == {("chain:nft:7", 0): 9}
