"""Anybody can deploy a contract that logs what a position manager logs: no event counts more than what moved."""

from __future__ import annotations

from chainfolio.portfolio.pnl.records import Treatment, entries_of
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
    paid = record("TRANSFERIN", [asset("a", "6", "60", POOL)], sender=OTHER)
    plain = entries_of([paid], [ME], Treatment(burn_addresses={NOBODY})).entries
    assert (
        entries_of([paid], [ME], Treatment(burn_addresses={NOBODY}), {("chain", "0x1"): [change(0, 6)]}).entries
        == plain
    )
    assert brief(plain) == {("received", "a", 6, 60)}
