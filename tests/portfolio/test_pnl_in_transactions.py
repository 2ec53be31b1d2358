"""Costs and gains in transactions: examples by hand, and sums equal to the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainfolio.amounts import total
from chainfolio.contracts import GAIN_METHODS
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.pnl.gains import SHORT
from chainfolio.portfolio.pnl.in_transactions import TransactionGains, transaction_gains, with_gains
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.report import document
from chainfolio.portfolio.pnl.transaction_records import asset_key, record_of
from chainfolio.portfolio.transactions import TransactionDocument
from tests.portfolio.test_pnl_records import ME, asset, transaction


def gains_by_transaction(
    records: Sequence[TransactionDocument], method: str = "fifo", **treatment: Any
) -> TransactionGains:
    read = entries_of(list(map(record_of, records)), {ME}, Treatment(**treatment))
    gains = gains_of(read.entries, method).gains
    return transaction_gains(read.entries, gains, treatment.get("aliases", {}), frozenset(read.shares))


def at(number: int, type_: str, *sides: Any, **more: Any) -> TransactionDocument:
    incoming, outgoing_assets, *fee = sides
    outgoing = [msgspec.structs.replace(each, is_asset_in=False) for each in outgoing_assets]
    facts = {"hash": f"0x{number}", "timestamp": str(1_600_000_000 + number), **more}
    return transaction(type_, incoming, outgoing, *fee, **facts)


def test_a_sale_says_what_was_sold_cost_and_gained_and_a_purchase_what_it_cost() -> None:
    records = [
        at(1, "TRANSFERIN", [asset("coin", "10", "20")], []),
        at(2, "SWAP", [asset("a", "5", "12")], [asset("coin", "4", "12")], ("1", "3")),
    ]
    gains = gains_by_transaction(records)
    (bought, _), (sold, faults) = (with_gains(each, gains) for each in records)
    (incoming,), (outgoing,), fee = sold.assets_in, sold.assets_out, sold.native_asset_fees
    assert (bought.closed_pnl, bought.assets_in[0].total_cost_basis, bought.assets_in[0].cost_basis) == ("0", "20", "2")
    assert (incoming.total_cost_basis, incoming.cost_basis, incoming.closed_pnl) == (
        "15",
        "3",
        "0",
    )  # with the fee of 3
    assert (outgoing.total_cost_basis, outgoing.cost_basis, outgoing.closed_pnl) == ("8", "2", "4")
    assert (fee.total_cost_basis, fee.closed_pnl) == ("2", "1")  # the coin that paid the fee was disposed of, too
    assert (sold.closed_pnl, faults) == ("5", {})


def test_rows_of_one_asset_share_its_net_movement_and_what_came_back_is_no_disposal() -> None:
    records = [
        at(1, "TRANSFERIN", [asset("a", "100", "100")], []),
        at(2, "SWAP", [asset("b", "1", "30"), asset("a", "10", "10")], [asset("a", "25", "25"), asset("a", "5", "5")]),
    ]
    filled, _ = with_gains(records[1], gains_by_transaction(records))
    assert [each.total_cost_basis for each in filled.assets_out] == [
        "16.666666666666666666666666666667",
        "3.333333333333333333333333333333",
    ]
    assert total([Decimal(each.total_cost_basis) for each in filled.assets_out]) == 20
    back = filled.assets_in[1]
    assert (back.closed_pnl, back.total_cost_basis) == ("0", UNKNOWN)


def test_what_is_not_known_is_n_a_with_its_reason_and_so_is_the_sum() -> None:
    records = [at(1, "TRANSFEROUT", [], [asset("a", "5", "50")])]
    filled, faults = with_gains(records[0], gains_by_transaction(records))
    assert filled.closed_pnl == filled.assets_out[0].closed_pnl == filled.assets_out[0].total_cost_basis == UNKNOWN
    assert faults == {"chain:a": SHORT}
    untouched = with_gains(records[0], TransactionGains(reason="not indexed"))
    assert untouched == (records[0], {})


def test_a_deposit_closes_nothing_and_a_wrapped_coin_is_the_coin() -> None:
    records = [
        at(1, "TRANSFERIN", [asset("coin", "10", "20")], []),
        at(2, "WRAP", [asset("weth", "4", "12")], [asset("coin", "4", "12")]),
        at(3, "DEPOSIT", [asset("share", "4")], [asset("weth", "4", "13")]),
        at(4, "TRANSFEROUT", [], [asset("coin", "2", "9")]),
    ]
    gains = gains_by_transaction(records, aliases={"chain:weth": "chain:coin"})
    closed = [with_gains(each, gains)[0].closed_pnl for each in records]
    assert closed == ["0", "0", "0", "5"]


def test_spam_has_no_gain_of_its_own() -> None:
    spam = at(1, "SPAM", [asset("bait", "5", "50")], [])
    filled, faults = with_gains(spam, gains_by_transaction([spam]))
    assert (filled.closed_pnl, filled.assets_in[0].closed_pnl, faults) == ("0", UNKNOWN, {})


def summed(parts: Iterable[Any]) -> Decimal | None:
    """Return the sum of closed gains, or None if one of them is unknown."""
    closed = [part.closed_pnl for part in parts]
    return None if UNKNOWN in closed else total([Decimal(each) for each in closed])


side_rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50), st.integers(0, 90)), max_size=2)
TYPES = ("SWAP", "TRANSFERIN", "CLAIM", "DEPOSIT", "WITHDRAW", "BORROW", "REPAYVAULT")
record_rows = st.lists(
    st.tuples(st.sampled_from(TYPES), side_rows, side_rows, st.integers(0, 3)), min_size=1, max_size=12
)


@pytest.mark.slow("other orders of the same lots", only=["lifo", "hifo", "lofo"])
@pytest.mark.parametrize("method", GAIN_METHODS)
@settings(max_examples=30, deadline=None)
@given(record_rows)
def test_all_transactions_together_closed_what_the_report_says(method: str, drawn_rows: list[Any]) -> None:
    records = [at(0, "TRANSFERIN", [asset(symbol, "2000", "2000") for symbol in ("a", "b", "c", "coin")], [])]
    for number, (type_, incoming, outgoing, fee) in enumerate(drawn_rows, 1):
        sides = [[asset(symbol, str(much), str(usd)) for symbol, much, usd in side] for side in (incoming, outgoing)]
        records.append(at(number, type_, *sides, (str(fee), str(2 * fee))))
    read = entries_of(list(map(record_of, records)), {ME}, Treatment())
    all_gains = gains_of(read.entries, method)
    report = document(all_gains, read.facts, {}, method=method, addresses=[ME])
    gains = transaction_gains(read.entries, all_gains.gains, {}, frozenset(read.shares))
    filled = [with_gains(each, gains)[0] for each in records]
    assert summed(filled) == summed([report])
    for each in filled:
        rows = (*each.assets_in, *each.assets_out, each.native_asset_fees)
        disposed = gains.disposals.get(each.hash, {}).keys()
        has_row = disposed <= set(map(asset_key, (*each.assets_out, each.native_asset_fees))) or any(
            asset_key(row) not in disposed or asset_key(row) in read.shares for row in each.assets_out
        )
        assert not has_row or summed(rows) == summed([each])


def test_a_share_that_gives_less_back_than_it_stood_for_has_the_loss() -> None:
    records = [
        at(1, "TRANSFERIN", [asset("a", "2", "8")], []),
        at(2, "DEPOSIT", [asset("share", "1")], [asset("a", "2", "8")]),
        at(3, "WITHDRAW", [asset("a", "1", "4")], [asset("share", "1")]),
    ]
    filled, _ = with_gains(records[2], gains_by_transaction(records))
    assert (filled.closed_pnl, filled.assets_out[0].closed_pnl, filled.assets_in[0].closed_pnl) == ("-4", "-4", "0")


def test_a_share_that_was_partly_bought_has_the_gains_of_both_parts() -> None:
    records = [
        at(1, "TRANSFERIN", [asset("a", "2", "8"), asset("usd", "10", "10")], []),
        at(2, "SWAP", [asset("share", "1", "10")], [asset("usd", "10", "10")]),
        at(3, "DEPOSIT", [asset("share", "1")], [asset("a", "2", "8")]),
        at(4, "WITHDRAW", [asset("a", "1", "4"), asset("usd", "12", "12")], [asset("share", "2")]),
    ]
    filled, _ = with_gains(records[3], gains_by_transaction(records))
    assert summed([filled]) not in (None, Decimal(0))
    assert summed((*filled.assets_in, *filled.assets_out, filled.native_asset_fees)) == summed([filled])


def test_a_sold_share_has_the_gains_of_what_it_stood_for() -> None:
    records = [
        at(1, "SWAP", [asset("a", "4", "40"), asset("b", "6", "60")], [asset("usd", "100", "100")]),
        at(2, "ADDLIQUIDITY", [asset("lp", "2", "120")], [asset("a", "4", "50"), asset("b", "6", "70")]),
        at(3, "SWAP", [asset("usd", "150", "150")], [asset("lp", "2", "150")]),
    ]
    filled, faults = with_gains(records[2], gains_by_transaction(records))
    assert (filled.closed_pnl, filled.assets_out[0].closed_pnl, filled.assets_out[0].total_cost_basis) == (
        "50",
        "50",
        "100",
    )
    assert faults == {}
