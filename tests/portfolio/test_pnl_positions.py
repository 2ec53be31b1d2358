"""Transferred positions: a buyer cannot hide their sale, and a contract that pays their owner borrows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.moved_positions import MovedPositions, moved_positions
from chainfolio.portfolio.pnl.position_changes import Claim, Position
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from chainfolio.portfolio.transactions import Nft, TransactionAssetDocument
from chainfolio.position_changes import PositionChange
from tests.portfolio.test_pnl_records import ME, MINE, NOBODY, OTHER, POOL, USD, asset, record

BUYER, FARM = "buyer", "farm"
TREATMENT = Treatment(burn_addresses={NOBODY}, is_trusted=lambda contract: contract != "chain:bait")


def position(counterparty: str, value: str = "N/A") -> TransactionAssetDocument:
    return asset("nft", "1", value, counterparty, nft=Nft(token_id="7"))


def changed(units: int, raw: int) -> PositionChange:
    return PositionChange("nft", 7, units, ("a", "b"), (raw, 0), POOL)


def gains(payment: TransactionRecord, holder: str) -> list[tuple[str, int, int | None, int | None]]:
    """Return asset, quantity, proceeds and cost (whole USD) of disposals after a position is transferred."""
    records = [
        record("TRANSFERIN", [asset("a", "500", "500")], hash="0x1", sender=OTHER),
        record("SWAP", [position(NOBODY)], [asset("a", "500", "500", POOL)], hash="0x2"),
        record("TRANSFEROUT", [], [position(holder, "900")], hash="0x3", recipient="nft"),
        payment,
    ]
    changes = {("chain", "0x2"): [changed(9, 500)], ("chain", "0x4"): [changed(0, 1)]}
    all_gains = gains_of(entries_of(records, (ME,), TREATMENT, changes).entries, "fifo").gains
    return [
        (gain.asset, gain.quantity, gain.proceeds and gain.proceeds // USD, gain.cost and gain.cost // USD)
        for gain in all_gains
    ]


@pytest.mark.parametrize("symbol", ["a", "bait", "other"])
@pytest.mark.parametrize(("sender", "recipient"), [(BUYER, "nft"), (OTHER, BUYER), (ME, "nft")])
def test_a_payment_that_a_buyer_causes_hides_no_sale(symbol: str, sender: str, recipient: str) -> None:
    payment = record("TRANSFERIN", [asset(symbol, "1", "1", POOL)], hash="0x4", sender=sender, recipient=recipient)
    assert gains(payment, BUYER) == [("chain:a", 500, 900, 500)]


@pytest.mark.parametrize(("sender", "recipient"), [(ME, FARM), (OTHER, ME)])
def test_a_contract_that_pays_the_owner_of_a_position_has_it_lent(sender: str, recipient: str) -> None:
    payment = record("INTERACTION", [asset("a", "1", "1", POOL)], hash="0x4", sender=sender, recipient=recipient)
    assert not [each for each in gains(payment, FARM) if each[1] == 500]
    untrusted_payment = record(
        "INTERACTION", [asset("bait", "1", "1", POOL)], hash="0x4", sender=sender, recipient=recipient
    )
    assert gains(untrusted_payment, FARM) == [("chain:a", 500, 900, 500)]


KEY = "chain:nft:7"


Moves = tuple[str, Sequence[TransactionAssetDocument], Sequence[TransactionAssetDocument]]


def moves(
    type_: str, incoming: Sequence[TransactionAssetDocument], outgoing: Sequence[TransactionAssetDocument]
) -> Moves:
    return type_, incoming, outgoing


def positions_of(
    *records: Moves,
    units: Sequence[int] = (),
    is_sender: bool = True,
    **treatment: Any,
) -> MovedPositions:
    """Return what moved, by types of records and their assets; `units` are those of the position in each."""
    changes = {("chain", f"0x{i}"): [changed(each, 0)] for i, each in enumerate(units) if each}
    documents = [
        record(type_, incoming, outgoing, hash=f"0x{i}", sender=ME if is_sender else OTHER)
        for i, (type_, incoming, outgoing) in enumerate(records)
    ]
    return moved_positions(documents, changes, (ME, MINE), replace(TREATMENT, **treatment))


def test_position_that_comes_back_without_a_payment_was_lent() -> None:
    transfer_out, transfer_in = moves("TRANSFEROUT", [], [position(FARM)]), moves("TRANSFERIN", [position(FARM)], [])
    assert positions_of(transfer_out, transfer_in, units=[0, 0, 9]).lent == {(KEY, 0), (KEY, 1)}
    payment = moves("SWAP", [position(FARM)], [asset("a", "5", "5")])
    purchase = moves("SWAP", [asset("a", "5", "5")], [position(FARM)])
    foreign_transfer = moves("TRANSFERIN", [position(OTHER)], [])
    for first, last in ((transfer_out, payment), (purchase, transfer_in), (transfer_out, foreign_transfer)):
        result = positions_of(first, last, units=[0, 0, 9])
        assert (result.lent, result.bought) == (set(), {(KEY, 1): 0})
    assert positions_of(transfer_out, transfer_in).bought == {}  # nothing shows that it is a position
    assert positions_of(transfer_out, transfer_in, transfer_in, units=[0, 0, 0, 9]).bought == {(KEY, 2): 0}
    lent = positions_of(transfer_out, transfer_in, units=[0, 0, 9])
    assert [lent.kind_of("sent", KEY, order) for order in (0, 2)] == ["deposit", "sent"]
    assert lent.kind_of("sell", KEY, 0) == "sell"


@pytest.mark.parametrize("sender", [ME, MINE, NOBODY])
def test_position_of_own_wallets_or_a_new_one_is_not_bought(sender: str) -> None:
    assert positions_of(moves("TRANSFERIN", [position(sender)], []), units=[9]).bought == {}


@pytest.mark.parametrize(("units", "liquidity"), [((0, -3, -4), 7), ((5, -3, -4), 2), ((0, 3, 0), 0)])
def test_bought_position_has_the_liquidity_that_was_removed_before_it_was_burnt(
    units: tuple[int, ...], liquidity: int
) -> None:
    purchase, burnt = moves("SWAP", [position(OTHER)], []), moves("INTERACTION", [], [position(NOBODY)])
    change, sold = moves("INTERACTION", [], []), moves("TRANSFEROUT", [], [position(BUYER)])
    assert positions_of(purchase, change, change, burnt, units=units).bought == {(KEY, 0): liquidity}
    assert positions_of(purchase, change, change, sold, units=units).bought == {(KEY, 0): 0}
    bought_twice = positions_of(purchase, change, purchase, change, burnt, units=[0, -3, 0, -4])
    assert bought_twice.bought == {(KEY, 0): 0, (KEY, 2): 4}


def test_given_assets_have_the_first_order_from_which_they_may_come_back() -> None:
    def gift_of(symbol: str, amount: str = "5", type_: str = "STAKE") -> Moves:
        return type_, (), [asset(symbol, amount, other=FARM)]

    repaid = gift_of("a", type_="TRANSFEROUT")
    empty, unknown, spam = gift_of("a", "0"), gift_of("a", "N/A"), gift_of("a", type_="SPAM")
    assert positions_of(empty, unknown, spam, gift_of("a"), gift_of("a")).takers == {("chain:a", FARM): 3}
    assert positions_of(empty, gift_of("a"), repaid).takers == {("chain:a", FARM): 0}
    aliases = {"chain:a": "chain:coin"}
    assert positions_of(empty, gift_of("a"), aliases=aliases).takers == {("chain:coin", FARM): 1}
    forged = positions_of(empty, gift_of("bait"), gift_of("a"), is_sender=False)
    assert forged.takers == {("chain:a", FARM): 2}
    assert positions_of(empty, gift_of("bait")).takers == {("chain:bait", FARM): 1}


def test_position_holds_both_tokens_with_what_went_in_and_was_not_paid_back() -> None:
    opened = Position(tokens=["chain:a", "chain:b"])
    opened.container.put(9, {"chain:a": 50})
    assert opened.pool() == {"chain:a": 50, "chain:b": 0}
    opened.claims = Claim(4, 5), Claim(3, 7)
    assert opened.pool() == {"chain:a": 55, "chain:b": 7}
    assert opened.close() == {"chain:a": 55, "chain:b": 7}
    assert opened.pool() == {"chain:a": 0, "chain:b": 0}
    assert Position().pool() == {}
