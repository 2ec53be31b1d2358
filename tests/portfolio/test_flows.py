"""Flows of transactions: only assets that enter or leave the set of valued assets count."""

from __future__ import annotations

from decimal import Decimal

import pytest

from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.metrics.flows import ValuationScope, flow_of
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from chainfolio.portfolio.transactions import NamedEntity, Nft, TransactionAssetDocument
from tests.portfolio.test_pnl_records import ME, MINE, NOBODY, POOL, asset, record

VALUED = ValuationScope({"chain:usd", "chain:eth"}, {"chain:odd"}, {"aave3"})
USD, ETH, ODD = asset("usd", "10", "10"), asset("eth", "1", "12"), asset("odd", "3")
KNOWN_PROTOCOL, STRANGE = NamedEntity(key="aave3", name="Aave"), NamedEntity(key="strange", name="Strange")


def flow(each: TransactionRecord, measured: ValuationScope = VALUED) -> Decimal | None:
    return flow_of(each, {ME, MINE}, measured, {"chain:usd", "chain:eth"}.__contains__)


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (record("TRANSFERIN", [USD]), 10),
        (record("TRANSFEROUT", [], [USD], ("1", "5")), -10),  # the fee is part of the return
        (record("AIRDROP", [USD]), 10),
        (record("MINT", [USD]), 10),
        (record("BRIDGEIN", [ETH]), 12),
        (record("BRIDGEOUT", [], [ETH]), -12),
        (record("TRANSFEROUT", [], [asset("usd", "10", "10", MINE)]), 0),
        (record("SPAM", [USD]), 0),
        (record("APPROVAL", fee=("1", "5")), 0),
        (record("CLAIM", [ETH]), 0),
        (record("COLLECT", [ETH]), 0),
        (record("SWAP", [ETH], [USD]), 0),
        (record("WRAP", [ETH], [USD]), 0),
    ],
)
def test_transfers_are_flows_and_swaps_claims_fees_and_own_moves_are_none(
    each: TransactionRecord, expected: int
) -> None:
    assert flow(each) == expected


@pytest.mark.parametrize("unvalued", [ODD, asset("ape", "1", nft=Nft(token_id="7"))])
def test_what_is_exchanged_for_something_without_a_value_leaves_and_comes_back(
    unvalued: TransactionAssetDocument,
) -> None:
    assert flow(record("SWAP", [unvalued], [USD])) == -10
    assert flow(record("SWAP", [USD], [unvalued])) == 10
    assert flow(record("TRANSFERIN", [unvalued])) == flow(record("TRANSFEROUT", [], [unvalued])) == 0


def test_a_deposit_is_a_flow_only_where_its_position_has_no_value() -> None:
    share = asset("share", "10", other=NOBODY)
    for valued, unknown in (
        (record("DEPOSIT", [share], [USD], protocol=KNOWN_PROTOCOL), record("DEPOSIT", [share], [USD])),
        (record("STAKE", [], [USD], protocol=KNOWN_PROTOCOL), record("STAKE", [], [USD], protocol=STRANGE)),
        (record("INTERACTION", [], [USD], protocol=KNOWN_PROTOCOL), record("INTERACTION", [], [USD])),
    ):
        assert flow(valued) == 0
        assert flow(unknown) == -10
    assert flow(record("WITHDRAW", [USD], [share], protocol=STRANGE)) == 10
    assert flow(record("BORROW", [USD], protocol=KNOWN_PROTOCOL)) == 0
    assert flow(record("TRANSFEROUT", [], [USD], protocol=KNOWN_PROTOCOL, recipient=POOL)) == -10


def test_what_comes_back_in_the_same_transaction_never_left() -> None:
    assert flow(record("SWAP", [asset("usd", "10", "10")], [USD])) == 0
    assert flow(record("UNDEFINED", [asset("usd", "4", "4")], [USD])) == -6


def test_what_is_measured_and_has_no_price_at_its_block_is_not_known() -> None:
    assert flow(record("TRANSFERIN", [asset("usd", "10", UNKNOWN)])) is None
    assert flow(record("SWAP", [asset("usd", "10", UNKNOWN)], [ETH])) == 0  # both are in the values of days
    assert flow(record("SWAP", [ODD], [asset("usd", "10", UNKNOWN)])) is None


def test_what_comes_and_leaves_between_two_days_counts_at_what_it_was_worth() -> None:
    passing = asset("passing", "5", "50")
    assert flow(record("TRANSFERIN", [passing])) == 50
    assert flow(record("TRANSFEROUT", [], [passing])) == -50
    assert flow(record("SWAP", [USD], [passing])) == 0


def test_what_others_say_that_a_token_did_for_which_nobody_vouches_is_no_flow() -> None:
    """The contract can log any transfer, at a price that any maker of a market can set."""
    forged = asset("bait", "1000", "1000000")
    transfer_out = record("TRANSFEROUT", [], [forged], sender="other")
    transfer_in = record("TRANSFERIN", [forged], sender="other")
    assert flow(transfer_out) == flow(transfer_in) == 0
    assert flow(record("SWAP", [USD], [forged], sender="other")) == 10, "the dollars came, whatever was sold"
    assert flow(record("TRANSFEROUT", [], [forged])) == -1_000_000, "the owner signed it"
    scope = ValuationScope({"chain:bait"})
    assert flow(transfer_out, scope) is flow(transfer_in, scope) is None, "it may have moved: the values have it"
