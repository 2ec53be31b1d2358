"""Positions that left: a buyer cannot hide their sale, and a contract that pays their owner has them only lent."""

from __future__ import annotations

import pytest

from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.transactions import Nft, TransactionAssetDocument, TransactionDocument
from chainfolio.position_changes import PositionChange
from tests.portfolio.test_pnl_records import ME, NOBODY, OTHER, POOL, USD, asset, record

BUYER, FARM = "buyer", "farm"
TREATMENT = Treatment(burn_addresses={NOBODY}, is_trusted=lambda contract: contract != "chain:bait")


def position(other: str, value: str = "N/A") -> TransactionAssetDocument:
    return asset("nft", "1", value, other, nft=Nft(token_id="7"))


def changed(units: int, raw: int) -> PositionChange:
    return PositionChange("nft", 7, units, ("a", "b"), (raw, 0), POOL)


def gains(paid: TransactionDocument, holder: str) -> list[tuple[str, int, int | None, int | None]]:
    """Asset, quantity, proceeds and cost (whole USD) of disposals, if a position goes to a holder and pays later."""
    records = [
        record("TRANSFERIN", [asset("a", "500", "500")], hash="0x1", sender=OTHER),
        record("SWAP", [position(NOBODY)], [asset("a", "500", "500", POOL)], hash="0x2"),
        record("TRANSFEROUT", [], [position(holder, "900")], hash="0x3", recipient="nft"),
        paid,
    ]
    changes = {("chain", "0x2"): [changed(9, 500)], ("chain", "0x4"): [changed(0, 1)]}
    found = gains_of(entries_of(records, (ME,), TREATMENT, changes).entries, "fifo").gains
    return [
        (gain.asset, gain.quantity, gain.proceeds and gain.proceeds // USD, gain.cost and gain.cost // USD)
        for gain in found
    ]


@pytest.mark.parametrize("symbol", ["a", "bait", "other"])
@pytest.mark.parametrize(("sender", "recipient"), [(BUYER, "nft"), (OTHER, BUYER), (ME, "nft")])
def test_a_payment_that_a_buyer_causes_hides_no_sale(symbol: str, sender: str, recipient: str) -> None:
    paid = record("TRANSFERIN", [asset(symbol, "1", "1", POOL)], hash="0x4", sender=sender, recipient=recipient)
    assert gains(paid, BUYER) == [("chain:a", 500, 900, 500)]


@pytest.mark.parametrize(("sender", "recipient"), [(ME, FARM), (OTHER, ME)])
def test_a_contract_that_pays_the_owner_of_a_position_has_it_lent(sender: str, recipient: str) -> None:
    paid = record("INTERACTION", [asset("a", "1", "1", POOL)], hash="0x4", sender=sender, recipient=recipient)
    assert not [each for each in gains(paid, FARM) if each[1] == 500]
    other = record("INTERACTION", [asset("bait", "1", "1", POOL)], hash="0x4", sender=sender, recipient=recipient)
    assert gains(other, FARM) == [("chain:a", 500, 900, 500)]
