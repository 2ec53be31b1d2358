"""Transfers between own accounts over chains: the lots follow, and only the owner can make one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.portfolio.pnl.entries import Entry
from chainfolio.portfolio.pnl.gains import Gains
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.own_transfers import AMBIGUOUS, NOT_OWN, NOTHING_ARRIVED, NOTHING_LEFT, match_transfers
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import BRIDGED, entries_of
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from chainfolio.portfolio.pnl.transfer_rows import OwnTransfer, transfer_document
from chainfolio.portfolio.transactions import NamedEntity, TransactionUser
from tests.portfolio.test_pnl_records import ME, MINE, OTHER, USD, asset, record

START, DAY = 1_600_000_000, 86_400
COINS = {"one:ETH": "ETH", "two:ETH": "ETH", "three:ETH": "ETH"}


def at(chain: str, second: int, type_: str, movement: str, **more: Any) -> TransactionRecord:
    """Return a record whose `movement` reads like "-5 USDC", worth 2 USD each or `price`."""
    number, symbol = movement.split()
    amount, price = abs(int(number)), more.pop("price", 2)
    row = asset(
        symbol,
        str(amount),
        str(amount * price),
        chain_contract=f"{chain}:{symbol}",
        decimal=str(more.pop("decimals", 0)),
    )
    facts = {
        "chain": NamedEntity(key=chain, name=chain),
        "timestamp": str(START + second),
        "hash": f"{chain} {second} {type_} {movement}",
        **more,
    }
    return record(type_, *(([], [row]) if number[0] == "-" else ([row], [])), **facts)


def match(*records: TransactionRecord, **more: Any) -> tuple[list[Entry], list[OwnTransfer]]:
    treatment = Treatment(coins=COINS, burn_addresses={"nobody"}, **more)
    ordered = sorted(records, key=lambda each: each.time_us)
    read = entries_of(ordered, (ME, MINE), treatment)
    return match_transfers(read.entries, ordered, (ME, MINE), treatment, read.facts)


def lots_by_wallet(gains: Gains) -> dict[str, tuple[int, int | None]]:
    """Quantity and cost in whole USD, by asset."""
    return {
        each.asset: (each.quantity, None if each.cost is None else each.cost // USD)
        for each in gains.remaining
        if each.quantity
    }


def reasons(transfers: Sequence[OwnTransfer]) -> list[str]:
    return [each.reason for each in transfers]


CROSSING = (
    at("one", 0, "TRANSFERIN", "+1000 USDC", price=1),
    at("one", 10, "BRIDGEOUT", "-600 USDC", price=3),
    at("two", 500, "BRIDGEIN", "+594 USDC", price=3),
)


@pytest.mark.parametrize("method", ["fifo", "lifo", "hifo", "average", "uk", "ca"])
def test_what_crosses_to_an_own_account_keeps_its_cost_and_the_rest_is_a_fee(method: str) -> None:
    entries, transfers = match(*CROSSING)
    gains = gains_of(entries, method)
    assert lots_by_wallet(gains) == {"one:USDC": (400, 400), "two:USDC": (594, 594)}
    assert [(each.kind, each.quantity, (each.gain or 0) // USD) for each in gains.gains] == [("fee", 6, 12)]
    assert reasons(transfers) == [""]
    assert not any(each.deposited or each.short for each in gains.remaining)


def test_the_day_of_acquisition_follows_over_the_chain_and_to_another_own_wallet() -> None:
    arrival = at("two", 500, "BRIDGEIN", "+600 USDC", price=3, user=TransactionUser(address=MINE))
    sale = at("two", 900, "TRANSFEROUT", "-600 USDC", price=3, sender=MINE, user=TransactionUser(address=MINE))
    entries, _ = match(*CROSSING[:2], arrival, sale)
    (gain,) = gains_of(entries, "fifo", per_wallet=True).gains
    assert gain.acquired_us == START * 1_000_000
    assert (gain.wallet, gain.cost, gain.proceeds) == (MINE, 600 * USD, 1800 * USD)


def test_lots_count_on_the_other_chain_only_once_they_arrived() -> None:
    early = at("two", 100, "TRANSFEROUT", "-50 USDC")
    gains = gains_of(match(*CROSSING, early)[0], "fifo")
    assert [each.reason for each in gains.gains if each.kind == "sent"] == ["more left than is known to have come"]
    assert lots_by_wallet(gains)["two:USDC"] == (594, 594)


def test_coins_cross_without_a_price_and_as_wrapped_coins() -> None:
    entries, transfers = match(at("one", 0, "BRIDGEOUT", "-50 ETH"), at("two", 0, "BRIDGEIN", "+50 WETH"))
    assert (reasons(transfers), [each.kind for each in entries]) == ([""], ["depart", "arrive"])
    assert [each.order for each in entries] == [0, 1]


@pytest.mark.parametrize(
    ("departure", "arrival", "expected"),
    [
        ("BRIDGEOUT", "BRIDGEIN", [""]),
        ("INTERACTION", "BRIDGEIN", [""]),
        ("BRIDGEOUT", "INTERACTION", [""]),
        ("BRIDGEOUT", "MINT", [""]),
        ("TRANSFEROUT", "BRIDGEIN", [NOTHING_LEFT]),
        ("INTERACTION", "INTERACTION", []),
        ("TRANSFEROUT", "TRANSFERIN", []),
    ],
)
def test_one_side_has_to_be_a_bridge_and_none_a_payment(departure: str, arrival: str, expected: list[str]) -> None:
    _, transfers = match(at("one", 0, departure, "-50 USDC"), at("two", 5, arrival, "+50 USDC"))
    assert reasons(transfers) == expected


@pytest.mark.parametrize(
    "arrival",
    [
        at("two", 500, "BRIDGEIN", "+587 USDC"),  # less than 98 %
        at("two", 500, "BRIDGEIN", "+601 USDC"),  # more than left
        at("two", 5, "BRIDGEIN", "+600 USDC"),  # before it left
        at("two", 10 + 14 * DAY + 1, "BRIDGEIN", "+600 USDC"),
        at("one", 500, "BRIDGEIN", "+600 USDC"),  # the same chain
        at("two", 500, "BRIDGEIN", "+600 USDT"),
        at("two", 500, "BRIDGEIN", "+6000 USDC", decimals=1),
        at("two", 500, "BRIDGEIN", "+600 USDC", price=5),  # a listed token with the symbol of another
    ],
)
def test_what_differs_is_no_transfer_and_both_sides_are_listed(arrival: TransactionRecord) -> None:
    entries, transfers = match(CROSSING[0], at("one", 10, "BRIDGEOUT", "-600 USDC"), arrival)
    assert sorted(reasons(transfers)) == [NOTHING_ARRIVED, NOTHING_LEFT]
    assert {each.kind: each.reason for each in entries if each.kind != "fee"} == {"deposit": "", "received": BRIDGED}


@pytest.mark.parametrize(
    "arrival",
    [
        at("two", 500, "BRIDGEIN", "+588 USDC"),
        at("two", 500, "BRIDGEIN", "+600 USDC"),
        at("two", 10, "BRIDGEIN", "+600 USDC"),
        at("two", 10 + 14 * DAY, "BRIDGEIN", "+600 USDC"),
        at("two", 500, "BRIDGEIN", "+600 USDC", price=4),
        at("two", 500, "BRIDGEIN", "+600 USDC", price=1),
    ],
    ids=["98-percent", "all", "at-once", "14-days", "double-price", "half-price"],
)
def test_what_just_fits_is_a_transfer(arrival: TransactionRecord) -> None:
    assert reasons(match(CROSSING[0], at("one", 10, "BRIDGEOUT", "-600 USDC"), arrival)[1]) == [""]


def test_strangers_make_no_transfer() -> None:
    theirs = at("one", 10, "BRIDGEOUT", "-600 USDC", sender=OTHER)
    assert reasons(match(CROSSING[0], theirs, CROSSING[2])[1]) == [NOT_OWN, NOTHING_LEFT]
    gift = at("two", 500, "TRANSFERIN", "+600 USDC", sender=OTHER)
    assert reasons(match(*CROSSING[:2], gift)[1]) == [NOTHING_ARRIVED]
    forged = at("two", 400, "BRIDGEIN", "+600 USDC", sender=OTHER)
    _, transfers = match(*CROSSING[:2], forged, is_trusted=lambda asset: not asset.startswith("two"))
    assert (NOTHING_ARRIVED in reasons(transfers), "" in reasons(transfers)) == (True, False)
    # An imitation does not change the match of the real arrival.
    fake = at("two", 400, "BRIDGEIN", "+600 FAKE", sender=OTHER)
    assert "" in reasons(match(*CROSSING, fake, is_trusted=lambda asset: "FAKE" not in asset)[1])


def test_ambiguous_transfers_are_listed_and_their_cost_is_not_known() -> None:
    second = at("three", 20, "BRIDGEOUT", "-600 USDC")
    later = at("two", 600, "BRIDGEIN", "+595 USDC")
    entries, transfers = match(*CROSSING, second, later)
    assert reasons(transfers) == [AMBIGUOUS] * 4
    assert lots_by_wallet(gains_of(entries, "fifo"))["two:USDC"] == (1189, None)
    assert reasons(match(*CROSSING, second)[1]) == [AMBIGUOUS] * 3


def test_repeated_transfers_are_sure_if_only_one_way_to_pair_them_exists() -> None:
    weekly = [
        each
        for week in range(40)
        for each in (
            at("one", week * 7 * DAY, "BRIDGEOUT", "-600 USDC"),
            at("two", week * 7 * DAY + 600, "BRIDGEIN", "+600 USDC"),
        )
    ]
    _, transfers = match(*weekly)
    assert len(transfers) == 40
    for each in transfers:
        assert each.departure is not None
        assert each.arrival is not None
        assert each.arrival.time_us - each.departure.time_us == 600 * 1_000_000


def test_a_transfer_is_shown_with_both_sides_and_its_fee() -> None:
    treatment = Treatment(coins=COINS)
    read = entries_of(CROSSING, (ME,), treatment)
    _, (transfer,) = match_transfers(read.entries, CROSSING, (ME,), treatment, read.facts)
    rendered = transfer_document(transfer, read.facts)
    assert (rendered.symbol, rendered.amount, rendered.arrived, rendered.fee) == ("USDC", "600", "594", "6")
    assert (rendered.chain, rendered.to_chain, rendered.transaction) == ("one", "two", "one 10 BRIDGEOUT -600 USDC")
    alone = transfer_document(OwnTransfer(None, transfer.arrival, NOTHING_LEFT), read.facts)
    assert (alone.chain, alone.amount, alone.fee, alone.to_chain) == ("", "", "", "two")


moves = st.tuples(st.sampled_from(["one", "two", "three"]), st.integers(0, 40), st.integers(-60, 60))


@given(
    st.lists(moves, max_size=14), st.randoms(use_true_random=False), st.sampled_from(["fifo", "average", "uk", "ca"])
)
def test_units_close_over_chains_and_sums_do_not_depend_on_order(
    steps: list[tuple[str, int, int]], random: Random, method: str
) -> None:
    records = [at("one", 0, "TRANSFERIN", "+1000 USDC"), at("one", 1, "TRANSFERIN", "+5 ETH", price=7)]
    for i, (chain, hour, raw) in enumerate(steps):
        if raw:
            type_ = "BRIDGEIN" if raw > 0 else "BRIDGEOUT" if raw % 3 else "TRANSFEROUT"
            records.append(at(chain, 3600 * hour + i + 2, type_, f"{'+' if raw > 0 else ''}{raw} USDC"))
    records.sort(key=lambda each: each.time_us)
    treatment = Treatment(coins=COINS)
    read = entries_of(records, (ME,), treatment)
    entries, transfers = match_transfers(read.entries, records, (ME,), treatment, read.facts)
    gains = gains_of(entries, method)
    for each in gains.remaining:
        asset_entries = [row for row in read.entries if row.asset == each.asset]
        incoming = sum(row.quantity for row in asset_entries if row.kind == "received")
        outgoing = sum(row.quantity for row in asset_entries if row.kind in ("sent", "deposit"))
        assert each.quantity - each.short - each.deposited == incoming - outgoing
    shuffled = list(read.entries)
    random.shuffle(shuffled)
    reordered, rematched = match_transfers(shuffled, records, (ME,), treatment, read.facts)
    assert (rematched, gains_of(reordered, method)) == (transfers, gains)
