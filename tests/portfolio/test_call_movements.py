"""Positions by calls of programs: what each kind of call does to the lots of a wallet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from chainfolio.portfolio.pnl.call_movements import (
    NO_RECIPIENT,
    NOT_CLEAR,
    NOT_OPENED,
    own_changes,
    split_changes,
)
from chainfolio.portfolio.pnl.record_rows import RecordEntries, Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionUser
from chainfolio.position_changes import CallChange, CallKind, PositionChange
from tests.portfolio.test_pnl_records import ME, MINE, NOBODY, OTHER, asset, brief, record

P, Q, SHARE, ACCOUNT = "position", "other position", "share", "account"
PRICES = {"a": 1, "b": 2, "coin": 10}  # USD; shares and positions have none
DISPOSAL = {"liquidity_is_disposal": True}
DEPOSITS_SOLD = {"deposits_are_disposals": True}
OPEN = CallChange("open", P, ME)
Brief = set[tuple[str, str, int, int | None]]


def call(
    kind: CallKind, position: str = P, owner: str = ME, moved: Mapping[str, int] | None = None, **more: Any
) -> CallChange:
    return CallChange(kind, position, owner, tuple((moved or {}).items()), **more)


def add(units: int | None = 8, **moved: int) -> CallChange:
    return call("add", moved={key: -raw for key, raw in moved.items()}, units=units, is_pool=True)


def remove(units: int | None = None, **moved: int) -> CallChange:
    return call("remove", moved=moved, units=units, is_pool=True)


ADDED = [OPEN, add(a=60, b=20)]
OTHER_ADDED = [call("open", Q), call("add", Q, moved={"a": -8}, units=3, is_pool=True)]
FARMED = [OPEN, call("lend", moved={"a": -60})]
POOLED = [call("share", SHARE, moved={"a": -60, "b": -20, SHARE: 8}, is_pool=True)]
RECEIVED, REQUESTED = [call("share", SHARE, moved={SHARE: 2})], [call("request", P, moved={SHARE: -2})]
VAULTED = [call("share", SHARE, moved={"a": -60, SHARE: 8})]


def row(mint: str, raw: int) -> TransactionAssetDocument:
    symbol = mint or "coin"
    return asset(symbol, str(abs(raw)), str(abs(raw) * PRICES[symbol]) if symbol in PRICES else "N/A")


def result(*transactions: Sequence[CallChange], own_wallets: Sequence[str] = (ME,), **treatment: Any) -> RecordEntries:
    """Return the entries of all transactions; each moves what its changes say of the own wallets."""
    records, changes = [], {}
    for number, each in enumerate(transactions):
        for wallet in own_wallets:
            moved: dict[str, int] = {}
            for mint, raw in (pair for change in each if change.owner == wallet for pair in change.moved):
                moved[mint] = moved.get(mint, 0) + raw
            incoming, outgoing = ([row(mint, raw) for mint, raw in moved.items() if sign * raw > 0] for sign in (1, -1))
            user = TransactionUser(address=wallet)
            records.append(record("INTERACTION", incoming, outgoing, hash=f"0x{number}", user=user))
        changes["chain", f"0x{number}"] = each
    return entries_of(records, own_wallets, Treatment(burn_addresses={NOBODY}, **treatment), changes)


def last(*transactions: Sequence[CallChange], **options: Any) -> tuple[Brief, list[str]]:
    """Return the entries and the reasons of issues of the last transaction."""
    read, number = result(*transactions, **options), f"0x{len(transactions) - 1}"
    entries = [each for each in read.entries if each.transaction == number]
    return brief(entries), [each.reason for each in read.issues if each.subject == number]


@pytest.mark.parametrize(
    ("calls", "treatment", "entries"),
    [
        pytest.param([ADDED], {}, {("deposit", "a", 60, 60), ("deposit", "b", 20, 40)}, id="add"),
        pytest.param(
            [ADDED], DISPOSAL, {("sell", "a", 60, 60), ("sell", "b", 20, 40), ("buy", P, 8, 100)}, id="add, sold"
        ),
        pytest.param(
            [ADDED, [remove(2, a=20, b=1)]],
            {},
            {("withdraw", "a", 15, 15), ("withdraw", "b", 5, 10), ("sell", "b", 4, 5), ("buy", "a", 5, 5)},
            id="a quarter that was exchanged in part",
        ),
        pytest.param(
            [ADDED, [remove(2, a=20, b=1)]],
            DISPOSAL,
            {("buy", "a", 20, 20), ("buy", "b", 1, 2), ("sell", P, 2, 22)},
            id="a quarter, sold",
        ),
        pytest.param([ADDED, [call("earn", moved={"a": 3})]], {}, {("income", "a", 3, 3)}, id="fees"),
        pytest.param([ADDED, [remove(0, a=3)]], {}, {("income", "a", 3, 3)}, id="payment for no liquidity"),
        pytest.param(
            [ADDED, [remove(2, a=15, b=5)], [remove(6, a=45, b=15)]],
            {},
            {("withdraw", "a", 45, 45), ("withdraw", "b", 15, 30)},
            id="the rest",
        ),
        pytest.param(
            [ADDED, [remove(2, a=15, b=5), remove(6, a=47, b=14), call("close")]],
            {},
            {("withdraw", "a", 60, 60), ("withdraw", "b", 20, 40), ("sell", "b", 1, 2), ("buy", "a", 2, 2)},
            id="several removals close as one",
        ),
        pytest.param(
            [ADDED, [remove(None, a=60, b=20), call("close")]],
            {},
            {("withdraw", "a", 60, 60), ("withdraw", "b", 20, 40)},
            id="closed without units",
        ),
        pytest.param(
            [ADDED, [call("close", moved={"a": 60, "b": 20})]],
            {},
            {("withdraw", "a", 60, 60), ("withdraw", "b", 20, 40)},
            id="closed in one call",
        ),
        pytest.param(
            [[OPEN, add(None, a=60)], [add(7, b=20)], [remove(5, a=60, b=20), call("close")]],
            {},
            {("withdraw", "a", 60, 60), ("withdraw", "b", 20, 40)},
            id="closed with units of which some were not known",
        ),
        pytest.param([ADDED, [remove(8)]], {}, set(), id="nothing paid for a part"),
        pytest.param([ADDED, [remove(8, a=60, b=20)], [call("close")]], {}, set(), id="closed when empty"),
        pytest.param(
            [ADDED, [remove(8, a=60, b=20)], [OPEN, add(2, a=10)], [remove(2, a=10)]],
            {},
            {("withdraw", "a", 10, 10)},
            id="opened again",
        ),
        pytest.param(
            [ADDED, [OPEN], [remove(8, a=60, b=20)]],
            {},
            {("withdraw", "a", 60, 60), ("withdraw", "b", 20, 40)},
            id="opened twice",
        ),
        pytest.param(
            [[OPEN, add(4, a=60)], [remove(4, a=50, b=5)]],
            {},
            {("withdraw", "a", 60, 60), ("sell", "a", 10, 10), ("buy", "b", 5, 10)},
            id="one asset that was exchanged in part",
        ),
        pytest.param(
            [[*ADDED, *OTHER_ADDED], [remove(8, a=80, b=10), replace(remove(3, a=9), position=Q)]],
            DISPOSAL,
            {("buy", "a", 80, 80), ("buy", "b", 10, 20), ("sell", P, 8, 100), ("buy", "a", 9, 9), ("sell", Q, 3, 9)},
            id="two positions, sold",
        ),
        pytest.param(
            [[*ADDED, *OTHER_ADDED], [call("earn", moved={"a": 2}), call("earn", Q, moved={"a": 3})]],
            {},
            {("income", "a", 2, 2), ("income", "a", 3, 3)},
            id="fees of two positions",
        ),
        pytest.param([FARMED], {}, {("deposit", "a", 60, 60)}, id="lend"),
        pytest.param([FARMED], DEPOSITS_SOLD, {("sent", "a", 60, 60)}, id="lend, sold"),
        pytest.param(
            [FARMED, [call("lend", moved={"a": 65})]],
            {},
            {("withdraw", "a", 60, 60), ("income", "a", 5, 5)},
            id="deposit with interest",
        ),
        pytest.param(
            [FARMED, [call("lend", moved={"a": 60})], [call("lend", moved={"a": 5})]],
            {},
            {("income", "a", 5, 5)},
            id="interest alone",
        ),
        pytest.param(
            [FARMED, [call("lend", moved={"a": 65})]], DEPOSITS_SOLD, {("received", "a", 65, 65)}, id="deposit, bought"
        ),
        pytest.param([FARMED, [call("debt", moved={"b": 7})]], {}, {("borrow", "b", 7, 14)}, id="loan"),
        pytest.param([FARMED, [call("debt", moved={"b": -7})]], {}, {("repay", "b", 7, 14)}, id="repayment"),
        pytest.param(
            [FARMED, [call("swap debt", moved={"b": -7, "a": 10})]],
            {},
            {("repay", "b", 7, 14), ("withdraw", "a", 10, 10)},
            id="repayment that releases a deposit",
        ),
        pytest.param([POOLED], {}, {("deposit", "a", 60, 60), ("deposit", "b", 20, 40)}, id="shares of a pool"),
        pytest.param(
            [POOLED],
            DISPOSAL,
            {("sell", "a", 60, 60), ("sell", "b", 20, 40), ("buy", SHARE, 8, 100)},
            id="shares, bought",
        ),
        pytest.param(
            [POOLED, [call("share", SHARE, moved={"a": 20, "b": 1, SHARE: -2}, is_pool=True)]],
            {},
            {("withdraw", "a", 15, 15), ("withdraw", "b", 5, 10), ("sell", "b", 4, 5), ("buy", "a", 5, 5)},
            id="shares of a pool come back",
        ),
        pytest.param(
            [POOLED, [call("share", SHARE, moved={"a": 20, "b": 1, SHARE: -2}, is_pool=True)]],
            DISPOSAL,
            {("buy", "a", 20, 20), ("buy", "b", 1, 2), ("sell", SHARE, 2, 22)},
            id="shares, sold",
        ),
        pytest.param(
            [VAULTED, [call("share", SHARE, moved={"a": 16, SHARE: -2})]],
            {},
            {("withdraw", "a", 15, 15), ("income", "a", 1, 1)},
            id="shares with interest",
        ),
        pytest.param(
            [RECEIVED, [call("share", SHARE, moved={"a": 5, SHARE: -2})]],
            {},
            {("buy", "a", 5, 5), ("sell", SHARE, 2, 5)},
            id="received shares are sold",
        ),
        pytest.param([RECEIVED, REQUESTED], {}, {("deposit", SHARE, 2, None)}, id="a request for received shares"),
        pytest.param(
            [RECEIVED, REQUESTED, [call("close", moved={"a": 5})]],
            {},
            {("withdraw", SHARE, 2, None), ("sell", SHARE, 2, 5), ("buy", "a", 5, 5)},
            id="a request for received shares pays",
        ),
        pytest.param([VAULTED, [call("request", P, moved={SHARE: -8})]], {}, set(), id="a request moves nothing"),
        pytest.param(
            [VAULTED, [call("request", P, moved={SHARE: -8})], [call("close", moved={"a": 66})]],
            {},
            {("withdraw", "a", 60, 60), ("income", "a", 6, 6)},
            id="a request pays",
        ),
    ],
)
def test_a_clear_call_keeps_lots_and_values(
    calls: Sequence[Sequence[CallChange]], treatment: Mapping[str, Any], entries: Brief
) -> None:
    assert last(*calls, **treatment) == (entries, [])


BINS = (3, 6)
BINNED = [call("open", span=BINS), add(None, a=100)]


def remove_part(part: int | None, span: tuple[int, int] | None, **moved: int) -> CallChange:
    return replace(remove(None, **moved), part=part, span=span)


@pytest.mark.parametrize("span", [BINS, (2, 7), (2, 6), (3, 7)])
def test_part_of_all_bins_is_that_part_of_a_position(span: tuple[int, int]) -> None:
    quarter_removal, half_removal, remainder = (
        remove_part(2_500, span, a=25),
        remove_part(5_000, span, a=37),
        remove_part(10_000, span, a=38),
    )
    assert last(BINNED, [quarter_removal]) == ({("withdraw", "a", 25, 25)}, [])
    assert last(BINNED, [quarter_removal], [half_removal]) == ({("withdraw", "a", 37, 37)}, [])
    assert last(BINNED, [quarter_removal], [half_removal], [remainder]) == ({("withdraw", "a", 38, 38)}, [])


def test_part_of_a_large_amount_is_exact() -> None:
    opened = [BINNED[0], add(None, a=10**24 + 4)]
    read = result(opened, [remove_part(2_500, BINS, a=10**24)])
    assert {each.quantity for each in read.entries if each.kind == "withdraw"} == {10**24 // 4 + 1}


LOST_ALL: Brief = {("withdraw", "a", 100, None), ("sell", "a", 100, None), ("received", "a", 25, None)}
LOST: Brief = {
    ("withdraw", "a", 60, None),
    ("withdraw", "b", 20, None),
    ("sell", "a", 60, None),
    ("sell", "b", 20, None),
}


@pytest.mark.parametrize(
    ("calls", "treatment", "entries"),
    [
        pytest.param([BINNED, [remove_part(2_500, (4, 6), a=25)]], {}, LOST_ALL, id="not the first bin"),
        pytest.param([BINNED, [remove_part(10_000, (3, 5), a=25)]], {}, LOST_ALL, id="not the last bin"),
        pytest.param([BINNED, [remove_part(2_500, None, a=25)]], {}, LOST_ALL, id="bins of the call not known"),
        pytest.param([[OPEN, add(None, a=100)], [remove_part(2_500, BINS, a=25)]], {}, LOST_ALL, id="bins not known"),
        pytest.param([BINNED, [call("resize")], [remove_part(2_500, BINS, a=25)]], {}, LOST_ALL, id="more bins"),
        pytest.param([BINNED, [remove(None, a=25)]], {}, LOST_ALL, id="units not known"),
        pytest.param([BINNED, [remove(1, a=25)]], {}, LOST_ALL, id="units of a position of which they are not known"),
        pytest.param(
            [BINNED, [remove_part(2_500, BINS, a=25)]],
            DISPOSAL,
            {("sell", P, 1, None), ("received", "a", 25, None)},
            id="part of one bought unit",
        ),
        pytest.param(
            [ADDED, [remove(9, a=1)]], {}, LOST | {("received", "a", 1, None)}, id="more units than there are"
        ),
        pytest.param([ADDED, [call("close")]], {}, LOST, id="closed without a payment"),
        pytest.param(
            [ADDED, [remove(2, a=15, b=5), call("close")]],
            {},
            LOST | {("received", "a", 15, None), ("received", "b", 5, None)},
            id="closed with less units than there are",
        ),
        pytest.param(
            [ADDED, [call("add", moved={"a": 1, "b": -2}, units=1)]],
            {},
            LOST | {("received", "a", 1, None), ("sell", "b", 2, None)},
            id="paid while it was added to",
        ),
        pytest.param([ADDED, [call("add", moved={"a": 1})]], {}, LOST | {("received", "a", 1, None)}, id="paid to add"),
        pytest.param([ADDED, [call("unclear", moved={"a": 1})]], {}, LOST | {("received", "a", 1, None)}, id="unclear"),
        pytest.param(
            [FARMED, [call("unclear", moved={"b": -1})]],
            {},
            {("withdraw", "a", 60, None), ("sell", "a", 60, None), ("sell", "b", 1, None)},
            id="unclear call of an account",
        ),
        pytest.param(
            [VAULTED, [call("share", SHARE, moved={SHARE: -2})]],
            {},
            {("withdraw", "a", 15, None), ("sell", "a", 15, None)},
            id="shares for nothing",
        ),
        pytest.param(
            [POOLED, [call("share", SHARE, moved={"a": 20, SHARE: -2}, is_pool=True)]],
            {},
            {
                ("withdraw", "a", 15, None),
                ("withdraw", "b", 5, None),
                ("sell", "a", 15, None),
                ("sell", "b", 5, None),
                ("received", "a", 20, None),
            },
            id="others got a part",
        ),
        pytest.param(
            [[call("share", SHARE, moved={SHARE: 2})]], {}, {("received", SHARE, 2, None)}, id="shares of others"
        ),
        pytest.param(
            [[call("share", SHARE, moved={"a": -9, "b": 1, SHARE: 2})]],
            {},
            {("received", SHARE, 2, None), ("received", "b", 1, None), ("sell", "a", 9, None)},
            id="shares and a payment",
        ),
        pytest.param([VAULTED, [call("share", SHARE, moved={"a": -9})]], {}, {("sell", "a", 9, None)}, id="no shares"),
    ],
)
def test_an_unclear_call_has_no_values(
    calls: Sequence[Sequence[CallChange]], treatment: Mapping[str, Any], entries: Brief
) -> None:
    assert last(*calls, **treatment) == (entries, [NOT_CLEAR])
    if entries >= LOST or entries == LOST_ALL:  # and so are those that follow
        later = [*calls, [call("remove", moved={"b": 3}, units=1)]]
        assert last(*later, **treatment) == ({("received", "b", 3, None)}, [NOT_CLEAR])
        later[-1] = [call("lend", moved={"b": 3})]
        assert last(*later, **treatment) == ({("received", "b", 3, None)}, [NOT_CLEAR])


@pytest.mark.parametrize("kind", ["remove", "earn", "debt", "lend", "close"])
def test_position_that_nobody_opened_pays_without_values(kind: CallKind) -> None:
    assert last([call(kind, moved={"a": 3})]) == ({("received", "a", 3, None)}, [NOT_OPENED])
    assert last([call(kind)]) == (set(), [NOT_OPENED] if kind in ("debt", "lend") else [])


def test_deposit_of_an_asset_that_never_went_in_has_no_value() -> None:
    assert last(FARMED, [call("lend", moved={"b": 3})]) == ({("received", "b", 3, None)}, [NOT_OPENED])


def test_shares_without_lots_are_redeemed_without_values() -> None:
    redeemed = call("share", SHARE, moved={"a": 5, SHARE: -2})
    assert last([redeemed]) == ({("received", "a", 5, None)}, [NOT_OPENED])


def test_request_for_shares_without_lots_pays_without_values() -> None:
    requested = [call("request", P, moved={SHARE: -8})]
    assert last(requested) == (set(), [])
    assert last(requested, [call("close", moved={"a": 5})]) == ({("received", "a", 5, None)}, [NOT_CLEAR])


@pytest.mark.parametrize("kind", ["rent", "cost"])
@pytest.mark.parametrize("holder", [ME, MINE, OTHER, ""])
def test_lamports_of_own_accounts_are_deposited_and_others_are_a_cost(kind: CallKind, holder: str) -> None:
    is_held = kind == "rent" and holder in (ME, MINE)
    payment = call(kind, ACCOUNT, moved={"": -5}, holder=holder)
    assert last([payment], own_wallets=(ME, MINE)) == ({("deposit" if is_held else "fee", "coin", 5, 50)}, [])
    assert result([payment], own_wallets=(ME, MINE)).rents == ({("chain:coin", ME): 5} if is_held else {})


RENTED = [call("rent", ACCOUNT, moved={"": -5}, holder=ME)]


def test_account_that_grows_keeps_all_its_lamports() -> None:
    growth = [call("rent", ACCOUNT, moved={"": -2})]  # existed before: its holder is not named
    assert last(RENTED, growth) == ({("deposit", "coin", 2, 20)}, [])
    assert result(RENTED, growth).rents == {("chain:coin", ME): 7}


@pytest.mark.parametrize(
    ("owner", "returned", "entries", "reasons"),
    [
        pytest.param(ME, 5, {("withdraw", "coin", 5, None)}, [], id="all"),
        pytest.param(ME, 3, {("withdraw", "coin", 5, None), ("fee", "coin", 2, 20)}, [], id="less"),
        pytest.param(OTHER, 5, {("withdraw", "coin", 5, None), ("fee", "coin", 5, None)}, [], id="others"),
        pytest.param("", 5, {("withdraw", "coin", 5, None), ("sell", "coin", 5, None)}, [NO_RECIPIENT], id="not known"),
    ],
)
def test_lamports_of_a_closed_account_come_back(owner: str, returned: int, entries: Brief, reasons: list[str]) -> None:
    closed = [call("rent", ACCOUNT, owner, moved={"": returned})]
    assert last(RENTED, closed) == (entries, reasons)
    assert result(RENTED, closed).rents == {}
    second_closing = [call("rent", ACCOUNT, moved={"": 5})]
    assert last(RENTED, closed, second_closing) == ({("received", "coin", 5, 50)}, [])


def test_lamports_beyond_those_of_an_account_are_received() -> None:
    closed = [call("rent", ACCOUNT, moved={"": 6})]
    assert last(RENTED, closed) == ({("withdraw", "coin", 5, None), ("received", "coin", 1, 10)}, [])


def test_changes_by_calls_are_split_from_those_by_events() -> None:
    event = PositionChange("nft", 7, 1, ("a", "b"), (1, 1), "pool")
    key, event_key, unknown, unread = (("chain", each) for each in ("0x1", "0x2", "0x3", "0x4"))
    by_events, by_calls = split_changes(
        {key: [event, OPEN], event_key: [event], unknown: None, unread: [event, call("unread"), OPEN]}
    )
    assert by_events == {key: [event], event_key: [event], unknown: None, unread: None}
    assert by_calls == {key: [OPEN], unread: [call("unread"), OPEN]}


def concerning(
    *changes: CallChange, positions: Sequence[str] = (), own_wallets: Sequence[str] = (ME, MINE), is_sender: bool = True
) -> Sequence[CallChange]:
    keys = [f"chain:{each}" for each in positions]
    return own_changes(changes, "chain", ME, own_wallets, keys, is_sender=is_sender)


PAID = call("remove", moved={"a": 3}, units=1)
UNCLEAR = CallChange("unclear", P, ME)


@pytest.mark.parametrize("kind", ["add", "remove", "earn", "close", "share", "lend", "debt"])
def test_change_of_a_strangers_position_is_none_of_a_wallet_that_did_nothing(kind: CallKind) -> None:
    payment = call(kind, moved={"a": 3})
    assert concerning(payment, is_sender=False) == []
    assert concerning(payment) == [payment]
    assert concerning(payment, positions=[P], is_sender=False) == [payment]
    own_change = call(kind, moved={"b": -1})
    assert concerning(payment, own_change, is_sender=False) == [payment, own_change]


def test_position_that_a_stranger_opens_for_a_wallet_is_none_of_its_own() -> None:
    assert concerning(OPEN, CallChange("resize", P), is_sender=False) == []
    assert concerning(OPEN, CallChange("resize", P)) == [OPEN, CallChange("resize", P)]
    assert concerning(replace(OPEN, owner=OTHER), CallChange("resize", P)) == []


@pytest.mark.parametrize("kind", ["remove", "close", "lend", "swap debt", "debt"])
@pytest.mark.parametrize("is_sender", [True, False])
def test_payment_of_a_position_to_others_is_unclear(kind: CallKind, is_sender: bool) -> None:
    payment = call(kind, owner=OTHER, moved={"a": 3})
    expected = [UNCLEAR] if is_sender or kind != "debt" else []  # anybody can repay a loan
    assert concerning(payment, positions=[P], is_sender=is_sender) == expected
    assert concerning(payment, is_sender=is_sender) == []


def test_fees_for_others_change_no_lots() -> None:
    assert concerning(call("earn", owner=OTHER, moved={"a": 3}), positions=[P]) == []


def test_pool_that_pays_a_wallet_is_no_other_owner() -> None:
    pool = call("remove", owner="pool", moved={"a": -3}, units=1)
    assert concerning(PAID, pool, positions=[P]) == [PAID]


@pytest.mark.parametrize("raw", [1, 3, 5])
def test_removal_that_also_pays_others_is_unclear(raw: int) -> None:
    pool, foreign_change = (
        call("remove", owner=owner, moved={"a": by}) for owner, by in (("pool", -3 - raw), (OTHER, raw))
    )
    assert concerning(PAID, pool, foreign_change, positions=[P]) == [replace(PAID, kind="unclear"), UNCLEAR, UNCLEAR]


@pytest.mark.parametrize("raw", [1, 5])
def test_addition_that_others_pay_in_part_is_unclear(raw: int) -> None:
    own_change = call("add", moved={"a": -3}, units=1)
    pool = call("add", owner="pool", moved={"a": 3})
    assert concerning(own_change, pool, positions=[P]) == [own_change]
    foreign_changes = [call("add", owner="pool", moved={"a": 3 + raw}), call("add", owner=OTHER, moved={"a": -raw})]
    assert [each.kind for each in concerning(own_change, *foreign_changes, positions=[P])] == ["unclear"] * 3


def test_change_that_several_own_wallets_share_is_unclear() -> None:
    both = [PAID, replace(PAID, owner=MINE)]
    assert concerning(*both, positions=[P]) == [replace(PAID, kind="unclear"), UNCLEAR]
    assert concerning(*both, positions=[P], own_wallets=[ME]) == [PAID]
    apart = [PAID, call("remove", "another", owner=MINE, moved={"a": 3})]
    assert concerning(*apart, positions=[P]) == [PAID]


def test_lamports_that_come_back_to_another_wallet_are_shown_to_each() -> None:
    back, payment = (call("rent", ACCOUNT, MINE, moved={"": raw}) for raw in (1, -1))
    assert concerning(back, payment, is_sender=False) == [back]


def test_removals_before_a_close_are_one() -> None:
    first, second = (
        replace(call("remove", moved={"a": raw, "b": 1}, units=2), part=5_000, span=BINS) for raw in (3, 4)
    )
    close, other_removal = call("close"), call("remove", "another", moved={"a": 9}, units=1)
    empty = call("remove", moved={"a": 1}, units=0)
    total = call("remove", moved={"a": 7, "b": 2}, units=4)
    assert concerning(first, other_removal, second, empty, close, positions=[P]) == [other_removal, total, empty, close]
    assert concerning(first, second, positions=[P]) == [first, second]
    uncounted = replace(second, units=None)
    empty_removal = call("remove", owner="", units=2)
    for pair in ((empty_removal, second), (second, empty_removal)):
        assert concerning(*pair, close, positions=[P]) == [call("remove", moved={"a": 4, "b": 1}, units=4), close]
    assert concerning(first, uncounted, close) == [replace(total, units=None), close]
    assert concerning(uncounted, first, close) == [replace(total, units=None), close]


def test_payments_of_a_change_without_a_recipient_belong_to_its_pool() -> None:
    empty_close, pool = call("close", owner=""), call("close", owner="pool", moved={"a": -3})
    assert concerning(empty_close, pool, positions=[P]) == [empty_close]
