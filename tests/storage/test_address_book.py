"""Address books, bundles and what else an account keeps, where several ask at once; on both databases."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from chainfolio.contracts import VirtualHolding
from chainfolio.errors import BadRequest
from chainfolio.settings import Quotas
from chainfolio.storage.state import State, address_book, audit, delegations, quotas, subscriptions, virtual_users
from chainfolio.storage.state.refusals import Refusal
from chainfolio.storage.state.subscriptions import one_year_after
from tests.storage.tenants import NOW_US, StoredTenant, locked, outcome, wallet
from tests.storage.test_state import Hands

DEFAULTS = Quotas()
A, B, C = (wallet(number) for number in (1, 2, 3))


@pytest.fixture
def state(state_url: str) -> Iterator[State]:
    opened = State.open(state_url, bytes(32), Hands(), random.Random(1))
    yield opened
    opened.close()


@pytest.fixture
def second(state: State, state_url: str) -> Iterator[State]:
    """A second connection to the same store."""
    opened = State.open(state_url, bytes(32), Hands(), random.Random(2))
    yield opened
    opened.close()


def at_once(works: Sequence[Callable[[], object]]) -> list[tuple[Any, ...]]:
    """Run all works at the same moment and return their outcomes."""
    ready, ends = threading.Barrier(len(works)), [("lost",)] * len(works)

    def run(index: int) -> None:
        ready.wait()
        ends[index] = outcome(works[index])

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


@pytest.fixture
def hands(state: State, second: State) -> list[StoredTenant]:
    """One account in two stores with four threads each."""
    id = state.create_account("ann")[0].id
    tenants = [StoredTenant(each, id, DEFAULTS) for each in (state, second) * 4]
    tenants[0].add(dict.fromkeys((wallet(number) for number in range(1, 21)), ""))
    return tenants


def codes(ends: list[tuple[Any, ...]]) -> dict[str, int]:
    return dict(Counter(end[0] for end in ends))


def test_of_equal_bundles_made_at_once_one_is_made(hands: list[StoredTenant]) -> None:
    ends = at_once([partial(k.create, f"b{n}", f"name {n}", [A, B][:: (-1) ** n]) for n, k in enumerate(hands)])
    assert codes(ends) == {"done": 1, "BUNDLE_MEMBERS_ALREADY_BUNDLED": 7}
    (twin,) = hands[0].contents()[1]
    assert {end[1]["bundleId"] for end in ends if end[0] != "done"} == {twin}


def test_of_equal_names_taken_at_once_one_is_taken(hands: list[StoredTenant]) -> None:
    ends = at_once([partial(k.create, f"b{n}", "same", [wallet(n + 1)]) for n, k in enumerate(hands)])
    assert codes(ends) == {"done": 1, "BUNDLE_NAME_TAKEN": 7}
    assert len(hands[0].contents()[1]) == 1


def test_of_bundles_renamed_at_once_one_gets_the_name(hands: list[StoredTenant]) -> None:
    for number in range(5):
        hands[0].create(f"b{number}", f"{number}", [wallet(number + 1)])
    ends = at_once([partial(k.rename, f"b{n}", "same") for n, k in enumerate(hands[:5])])
    assert codes(ends) == {"done": 1, "BUNDLE_NAME_TAKEN": 4}


def test_quotas_hold_at_once(hands: list[StoredTenant]) -> None:
    ends = at_once([partial(k.create, f"b{n}", f"{n}", [wallet(n + 1)]) for n, k in enumerate(hands)])
    assert codes(ends) == {"done": 5, "BUNDLE_QUOTA_REACHED": 3}
    tens = [{wallet(100 * first + number): "" for number in range(50, 60)} for first in range(len(hands))]
    ends = at_once([partial(k.add, ten) for k, ten in zip(hands, tens, strict=True)])
    assert codes(ends) == {"done": 3, "ADDRESSBOOK_QUOTA_REACHED": 5}
    assert len(hands[0].contents()[0]) == 50


def test_a_bundle_does_not_outgrow_its_limit_at_once(hands: list[StoredTenant]) -> None:
    hands[0].create("b", "b", [wallet(number) for number in range(1, 8)])
    ends = at_once([partial(k.add_member, "b", wallet(n + 10)) for n, k in enumerate(hands)])
    assert codes(ends) == {"done": 3, "BUNDLE_SIZE_LIMIT_EXCEEDED": 5}


def test_an_entry_is_deleted_once(hands: list[StoredTenant]) -> None:
    assert codes(at_once([partial(k.remove, A) for k in hands])) == {"done": 1, "ADDRESSBOOK_ENTRY_NOT_FOUND": 7}


def test_a_bundle_is_deleted_once(hands: list[StoredTenant]) -> None:
    hands[0].create("b", "b", [A])
    assert codes(at_once([partial(k.delete, "b") for k in hands])) == {"done": 1, "BUNDLE_NOT_FOUND": 7}


def test_the_last_member_stays_whoever_takes_out_the_others(hands: list[StoredTenant]) -> None:
    members = [wallet(number) for number in range(1, 9)]
    hands[0].create("b", "b", members)
    ends = at_once([partial(k.remove_member, "b", each) for k, each in zip(hands, members, strict=True)])
    assert codes(ends) == {"done": 7, "BUNDLE_EMPTY": 1}
    hands[0].create("c", "c", members[:2])
    at_once([partial(k.remove, each) for k, each in zip(hands, members, strict=True)])
    labels, bundles = hands[0].contents()
    assert all(each and set(each) <= set(labels) for _, each in bundles.values())


def test_no_bundle_gets_a_member_that_leaves_the_book(hands: list[StoredTenant]) -> None:
    works: list[Callable[[], object]] = [lambda: hands[0].remove(A), lambda: hands[1].create("b", "b", [A, B])]
    works += [lambda: hands[2].remove(B), lambda: hands[3].create("c", "c", [B, C])]
    at_once(works)
    labels, bundles = hands[0].contents()
    assert all(members and set(members) <= set(labels) for _, members in bundles.values())
    assert len({frozenset(members) for _, members in bundles.values()}) == len(bundles)


# --- plans, quotas, delegations --------------------------------------------------------------------------------------


def test_plans_of_an_entry(state: State) -> None:
    id = state.create_account("ann")[0].id
    tenant = StoredTenant(state, id, DEFAULTS)
    tenant.add({A: "a"})

    def plan(plan: str, until_us: int | None, authorized: bool | None = None) -> address_book.Entry:
        return locked(
            state, id, lambda tx: address_book.set_plan(tx, id, A, plan, until_us, NOW_US, owner_authorized=authorized)
        )

    for name, until_us, reason in (
        ("FREE", 5, "FREE has no end"),
        ("PRO", None, "PRO needs a moment at which it lapses"),
        ("GOLD", 5, "`GOLD` is no plan"),
    ):
        with pytest.raises(BadRequest, match=reason):
            plan(name, until_us)
    entry = plan("PRO", NOW_US + 1, True)
    assert (entry, entry.is_paid(NOW_US), entry.is_paid(NOW_US + 1)) == (
        address_book.Entry(A, "a", "PRO", NOW_US + 1, True),
        True,
        False,
    )
    assert outcome(lambda: tenant.remove(A)) == ("ADDRESSBOOK_ENTRY_NOT_DELETABLE", {})
    plan("LITE", NOW_US)  # has lapsed, but the owner's word stands
    assert outcome(lambda: tenant.remove(A)) == ("ADDRESSBOOK_ENTRY_NOT_DELETABLE", {})
    plan("LITE", NOW_US, False)
    tenant.remove(A)
    with pytest.raises(Refusal) as caught:
        plan("FREE", None)
    assert caught.value.code == "ADDRESSBOOK_ENTRY_NOT_FOUND"
    notes = [note for note in state.database.read(lambda tx: audit.entries(tx, id)) if "plan" in note.action]
    assert [note.detail["to"] for note in notes] == ["PRO", "LITE", "LITE"]


def test_a_quota_of_its_own_and_back(state: State) -> None:
    ann, eve = (state.create_account(name)[0].id for name in ("ann", "eve"))

    def limits(id: str) -> dict[str, int]:
        return state.database.read(lambda tx: quotas.limits(tx, id, DEFAULTS))

    def override(id: str, name: str, value: int | None) -> None:
        state.database.write(lambda tx: quotas.override(tx, id, name, value, NOW_US))

    for value, limit in ((7, 7), (0, 0), (None, 5)):
        override(ann, "bundles", value)
        assert limits(ann) == {"addressbook": 50, "bundles": limit, "bundle-size": 10}
        assert limits(eve)["bundles"] == 5
    override(ann, "bundles", quotas.MAX_QUOTA)
    assert limits(ann)["bundles"] == quotas.MAX_QUOTA
    bounds = f"0 to {quotas.MAX_QUOTA:,}"
    for name, wrong, reason in (
        ("bundles", -1, bounds),
        ("bundles", quotas.MAX_QUOTA + 1, bounds),
        ("cats", 1, "no quota"),
    ):
        with pytest.raises(BadRequest, match=reason):
            override(ann, name, wrong)
    with pytest.raises(BadRequest, match="there is no account"):
        override("acc_x", "bundles", 1)
    assert limits(ann)["bundles"] == quotas.MAX_QUOTA


def test_delegations_go_one_way_and_end(state: State) -> None:
    ann, eve, bob = (state.create_account(name)[0].id for name in ("ann", "eve", "bob"))

    def acting(caller: str, account_id: str | None) -> Any:
        return state.database.read(lambda tx: delegations.acting_for(tx, caller, account_id))

    def delegate(account_id: str, delegate_id: str) -> bool:
        return state.database.write(lambda tx: delegations.delegate(tx, account_id, delegate_id, 1))

    assert [delegate(ann, eve), delegate(ann, eve)] == [True, False]
    assert (acting(eve, ann), acting(eve, None)) == (ann, eve)
    for caller, account_id in (
        (ann, eve),
        (bob, ann),
        (eve, bob),
        (eve, eve),
        (eve, "acc_x"),
        (eve, "\0"),
        (eve, "\udcff"),
    ):
        with pytest.raises(Refusal, match="no account of that id"):
            acting(caller, account_id)
    assert [state.database.write(lambda tx: delegations.withdraw(tx, ann, eve, 2)) for _ in "12"] == [True, False]
    with pytest.raises(Refusal):
        acting(eve, ann)
    unknown = "there is no account acc_x"
    for owner_id, delegate_id, reason in (
        (ann, ann, "acts for itself"),
        (ann, "acc_x", unknown),
        ("acc_x", ann, unknown),
    ):
        with pytest.raises(BadRequest, match=reason):
            delegate(owner_id, delegate_id)
    assert state.database.read(lambda tx: delegations.delegates(tx, ann)) == []


# --- subscriptions ---------------------------------------------------------------------------------------------------


async def test_a_subscription_lasts_a_year_and_is_not_bought_twice(state: State) -> None:
    ann, eve = (state.create_account(name)[0].id for name in ("ann", "eve"))
    assert isinstance(state.clock, Hands)

    def add(id: str, *addresses: str) -> list[subscriptions.Subscription]:
        now_us = state.clock.now_us()
        return locked(state, id, lambda tx: subscriptions.add(tx, id, dict.fromkeys(addresses, "x"), now_us))

    (subscription,) = add(ann, A)
    assert (subscription.began_us, subscription.expires_us) == (1_000_000, one_year_after(1_000_000))
    assert await state.subscribed(ann, [A, B, A]) == {A}
    assert await state.subscribed(eve, [A]) == set()
    assert outcome(lambda: add(ann, B, A)) == ("ALREADY_SUBSCRIBED", {"addresses": [A]})
    with pytest.raises(Refusal, match=f"already subscribed to {A}"):
        add(ann, A)
    assert await state.subscribed(ann, [A, B]) == {A}
    state.clock.us = subscription.expires_us - 1
    assert await state.subscribed(ann, [A]) == {A}
    state.clock.us = subscription.expires_us
    assert await state.subscribed(ann, [A]) == set()
    add(ann, A)
    assert await state.subscribed(ann, [A]) == {A}
    assert len(state.database.read(lambda tx: subscriptions.every(tx, ann))) == 1
    (later,) = add(eve, A)
    sold = sorted((id, A, later.expires_us) for id in (ann, eve))
    assert state.database.read(lambda tx: subscriptions.sold(tx, later.expires_us - 1)) == sold
    assert state.database.read(lambda tx: subscriptions.sold(tx, later.expires_us)) == []


def test_of_equal_subscriptions_made_at_once_one_is_made(state: State, second: State) -> None:
    id = state.create_account("ann")[0].id

    def add(each: State) -> None:
        locked(each, id, lambda tx: subscriptions.add(tx, id, {A: ""}, NOW_US))

    ends = at_once([partial(add, each) for each in (state, second) * 3])
    assert codes(ends) == {"done": 1, "ALREADY_SUBSCRIBED": 5}


@pytest.mark.parametrize(
    ("start", "ends"), [("2024-02-29T12:00:00.000001", "2025-03-01T12:00:00.000001"), ("2023-12-31", "2024-12-31")]
)
def test_a_year_is_a_year_of_the_calendar(start: str, ends: str) -> None:
    def us(text: str) -> int:
        at = datetime.fromisoformat(text).replace(tzinfo=UTC)
        return int(at.timestamp()) * 1_000_000 + at.microsecond

    assert one_year_after(us(start)) == us(ends)


# --- virtual users ---------------------------------------------------------------------------------------------------

MIXED = "0xD8dA6BF26964aF9D7eEd9e03E53415D37aA96045"


def test_what_a_virtual_user_holds_is_read_exactly() -> None:
    document = f"""[
        {{"chain": "ethereum", "contract": "native", "amount": "1.5"}},
        {{"chain": "ethereum", "contract": "{MIXED}", "amount": "0"}},
        {{"symbol": "EUR", "amount": "{"9" * 40}.{"9" * 36}", "priceUsd": "1.08"}},
        {{"symbol": "XAU", "amount": "2"}}
    ]"""
    assert virtual_users.parse_document("BALANCE", document.encode()).holdings == (
        VirtualHolding("1.5", "ethereum"),
        VirtualHolding("0", "ethereum", MIXED.lower()),
        VirtualHolding(f"{'9' * 40}.{'9' * 36}", symbol="EUR", usd="1.08"),
        VirtualHolding("2", symbol="XAU"),
    )
    assert virtual_users.parse_document("GROUP", f'{{"addresses": ["{MIXED}"]}}'.encode()).accounts == (MIXED.lower(),)
    assert virtual_users.parse_document("CEX", b"[]").holdings == ()


@pytest.mark.parametrize(
    ("type", "document"),
    [
        ("BALANCE", "{}"),
        ("BALANCE", "nothing"),
        ("BALANCE", '[{"amount": "1"}]'),
        ("BALANCE", "[null]"),
        ("CEX", '[{"symbol": "EUR", "amount": 1}]'),
        ("CEX", '[{"symbol": "EUR", "amount": "1e3"}]'),
        ("CEX", '[{"symbol": "EUR", "amount": "-1"}]'),
        ("CEX", '[{"symbol": "EUR", "amount": "1\\n"}]'),
        ("CEX", '[{"symbol": "EUR", "amount": "01"}]'),
        ("CEX", '[{"symbol": "EUR", "amount": "NaN"}]'),
        ("CEX", '[{"symbol": "", "amount": "1"}]'),
        ("CEX", '[{"symbol": "EUR", "amount": "1", "price": "1"}]'),
        ("CEX", '[{"symbol": "EUR", "amount": "1"}, {"symbol": "EUR", "amount": "1"}]'),
        ("CEX", '[{"symbol": "EUR", "amount": "1", "amount": "2"}]'),
        ("CEX", '[{"symbol": "\\u0000", "amount": "1"}]'),
        ("CEX", '[{"symbol": "EUR", "chain": "ethereum", "contract": "native", "amount": "1"}]'),
        ("BALANCE", '[{"chain": "ethereum", "amount": "1"}]'),
        ("BALANCE", '[{"contract": "native", "amount": "1"}]'),
        ("BALANCE", '[{"chain": "ethereum", "contract": "0x12", "amount": "1"}]'),
        ("BALANCE", '[{"chain": "e", "contract": "native", "amount": "1", "priceUsd": "1"}]'),
        ("GROUP", "[]"),
        ("GROUP", '{"addresses": []}'),
        ("GROUP", '{"addresses": ["0x12"]}'),
        ("GROUP", f'{{"addresses": ["{MIXED}", "{MIXED.lower()}"]}}'),
        ("WALLET", "[]"),
    ],
)
def test_what_a_virtual_user_cannot_hold_is_refused(type: str, document: str) -> None:
    with pytest.raises(BadRequest):
        virtual_users.parse_document(type, document.encode())


def test_virtual_users_are_of_one_account(state: State) -> None:
    ann, eve = (state.create_account(name)[0].id for name in ("ann", "eve"))

    def add(owner: str, id: str) -> None:
        state.database.write(lambda tx: virtual_users.add(tx, owner, id, "CEX", f"label {id}", b"[]", 1))

    def chosen(ids: list[str]) -> list[str]:
        return [user.id for user in state.database.read(lambda tx: virtual_users.find_all(tx, ann, ids))]

    def remove(owner: str) -> bool:
        return state.database.write(lambda tx: virtual_users.remove(tx, owner, "3", 2))

    for owner, id in ((ann, "1"), (ann, "2"), (eve, "3")):
        add(owner, id)
    every = state.database.read(lambda tx: virtual_users.every(tx, ann))
    assert [(user.id, user.type, user.label, user.holdings) for user in every] == [
        ("1", "CEX", "label 1", ()),
        ("2", "CEX", "label 2", ()),
    ]
    assert chosen(["2", "1"]) == ["2", "1"]
    for ids in (["3"], ["1", "3"], ["4"]):
        with pytest.raises(Refusal, match="not all of these"):
            chosen(ids)
    assert [remove(owner) for owner in (ann, eve, eve)] == [False, True, False]


# --- addresses of bundles leave the address book ---------------------------------------------------------------------


@pytest.fixture
def bundled(state: State) -> StoredTenant:
    """An account with three addresses and the bundles `pair` of A and B, and `one` of C."""
    tenant = StoredTenant(state, state.create_account("ann")[0].id, DEFAULTS)
    tenant.add({A: "a", B: "b", C: "c"})
    tenant.create("b1", "pair", [A, B])
    tenant.create("b2", "one", [C])
    return tenant


def test_an_address_that_leaves_the_book_leaves_its_bundles_and_no_other(bundled: StoredTenant) -> None:
    bundled.remove(B)
    assert bundled.contents() == ({A: "a", C: "c"}, {"b1": ("pair", [A]), "b2": ("one", [C])})


def test_the_last_address_of_a_bundle_is_not_deleted_and_the_refusal_names_the_bundle(bundled: StoredTenant) -> None:
    before = bundled.contents()
    with pytest.raises(Refusal, match=r"^this is the last address of the bundle one \(b2\)$"):
        bundled.remove(C)
    assert bundled.contents() == before


def test_an_address_without_which_two_bundles_are_the_same_is_not_deleted(bundled: StoredTenant) -> None:
    bundled.create("b3", "alone", [A])
    before = bundled.contents()
    with pytest.raises(Refusal, match=r"^without this address the bundle pair \(b1\) would be the same as alone$"):
        bundled.remove(B)
    assert bundled.contents() == before


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (lambda kept: kept.delete("b9"), "there is no bundle of that id"),
        (lambda kept: kept.rename("b1", "one"), "another bundle has this name"),
        (lambda kept: kept.create("b3", "again", [B, A]), "another bundle holds exactly these addresses"),
        (lambda kept: kept.create("b3", "far", [wallet(9)]), f"not in the address book: {wallet(9)}"),
        (lambda kept: kept.add_member("b2", wallet(9)), f"not in the address book: {wallet(9)}"),
        (lambda kept: kept.remove_member("b1", C), "this address is not in the bundle"),
        (lambda kept: kept.remove_member("b2", C), "this is the bundle's last address: delete the bundle instead"),
        (lambda kept: kept.label(wallet(9), "far"), "this address is not in the address book"),
        (
            lambda kept: kept.create("b3", "big", [wallet(number) for number in range(99)]),
            f"99 addresses: a bundle holds at most {DEFAULTS.bundle_size}",
        ),
        (
            lambda kept: kept.add({wallet(number): "" for number in range(100, 160)}),
            f"the address book holds 3 of at most {DEFAULTS.addressbook} entries; 60 more do not fit",
        ),
    ],
    ids=["no-bundle", "name", "twin", "far", "far-member", "no-member", "last", "no-entry", "size", "book"],
)
def test_a_refused_change_says_why_and_changes_nothing(
    bundled: StoredTenant, work: Callable[[StoredTenant], None], reason: str
) -> None:
    before = bundled.contents()
    with pytest.raises(Refusal, match=f"^{re.escape(reason)}$"):
        work(bundled)
    assert bundled.contents() == before
