"""A customer stores addresses and bundles, alone and for another account, and meets every error of the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from tests.e2e import shapes
from tests.e2e.client import Client, RefusedError, costs, send
from tests.e2e.running import DAVE, FRANK, SOLANA, STARKNET, TRON, Account, Demo

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("demo")]

NUMBER = count(1)
NOWHERE = "00000000-0000-4000-8000-000000000000"


def address(number: int) -> str:
    return f"0x{number:040x}"


@pytest.fixture
def customer(demo: Demo) -> Account:
    return demo.account(f"keeper {next(NUMBER)}", grants=("portfolio",))


@pytest.fixture
def me(demo: Demo, customer: Account) -> Client:
    return demo.client(customer.key)


@contextmanager
def raises_refusal(client: Client, status: int, code: str, **extras: Any) -> Iterator[None]:
    """A call that fails with this code and these extra fields, and costs nothing."""
    with costs(client, 0), pytest.raises(RefusedError) as caught:
        yield
    answer = caught.value.answer
    error = answer.read(shapes.Enveloped).error
    assert (answer.status, error.code) == (status, code), answer.body
    assert {name: getattr(error, name) for name in extras} == extras, answer.body


def test_addresses_are_kept_as_they_are_normally_written(me: Client) -> None:
    with costs(me, 1):
        entries = me.keep(("0x" + DAVE[2:].upper(), "  savings\u00a0"), (SOLANA, ""), (TRON, ""), (STARKNET, ""))
    assert [entry.address for entry in entries] == [DAVE, SOLANA, TRON, STARKNET]
    assert entries[0] == shapes.Entry(address=DAVE, label="savings", plan="FREE", expires_at=None, is_paid=False)
    with costs(me, 1):
        assert me.book() == entries
    assert me.keep((DAVE, "other"), (FRANK, "new"))[0].label == "savings", "who is there keeps the label"
    with costs(me, 1):
        assert me.label("0x" + DAVE[2:].upper(), "x" * 255).label == "x" * 255
    assert me.label(DAVE, "").label == ""
    with costs(me, 1):
        me.forget(SOLANA)
    assert SOLANA not in {entry.address for entry in me.book()}
    with raises_refusal(me, 404, "ADDRESSBOOK_ENTRY_NOT_FOUND"):
        me.forget(SOLANA)
    with raises_refusal(me, 404, "ADDRESSBOOK_ENTRY_NOT_FOUND"):
        me.label(SOLANA, "gone")


def test_addresses_that_are_malformed_or_given_twice(me: Client) -> None:
    with raises_refusal(me, 400, "VALIDATION_ERROR"):
        me.keep(("vitalik.eth", ""))
    with raises_refusal(me, 400, "VALIDATION_ERROR"):
        me.keep((DAVE, ""), ("0x" + DAVE[2:].upper(), ""))
    with raises_refusal(me, 400, "VALIDATION_ERROR"):
        me.label("0x12", "")
    with raises_refusal(me, 400, "VALIDATION_ERROR"):
        me.forget("0x12")
    assert me.book() == []
    me.keep((DAVE, ""), (FRANK, ""))
    bundle = me.bundled("both", DAVE, FRANK)
    with raises_refusal(me, 400, "VALIDATION_ERROR"):
        me.bundled("twice", DAVE, DAVE)
    with raises_refusal(me, 400, "VALIDATION_ERROR"):
        me.bundled("malformed", "0x12")
    with raises_refusal(me, 400, "VALIDATION_ERROR"):
        me.join(bundle.id, "0x12")
    with raises_refusal(me, 400, "VALIDATION_ERROR"):
        me.leave(bundle.id, "0x12")


def test_kinds_of_address_differ_in_whether_their_case_counts(me: Client) -> None:
    me.keep((DAVE, ""), (SOLANA, ""))
    assert me.label("0X" + DAVE[2:].upper(), "evm").address == DAVE
    with raises_refusal(me, 404, "ADDRESSBOOK_ENTRY_NOT_FOUND"):
        me.label(SOLANA.replace("E", "e", 1), "another address")
    encoded = "".join(f"%{ord(letter):02x}" for letter in DAVE)
    assert send(me, f"/addressbook/{encoded}", "PATCH", {"label": "decoded once"}).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        {},
        {"entries": []},
        {"entries": [{"label": "x"}]},
        {"entries": [{"address": DAVE, "label": 7}]},
        {"entries": [{"address": DAVE, "label": "x" * 256}]},
        {"entries": [{"address": address(number)} for number in range(101)]},
    ],
    ids=lambda body: str(body)[:40],
)
def test_entries_that_do_not_fit_the_schema(me: Client, body: Any) -> None:
    with costs(me, 0):
        answer = send(me, "/addressbook", "POST", body)
    assert answer.status == 400
    assert answer.read(shapes.Invalid).details["body"]
    assert me.book() == []


def test_an_address_book_is_full_at_fifty_without_a_paid_plan(demo: Demo, customer: Account, me: Client) -> None:
    me.keep(*((address(number), "") for number in range(1, 50)))
    with raises_refusal(me, 422, "ADDRESSBOOK_QUOTA_REACHED", quota=50, current=49):
        me.keep((address(50), ""), (address(51), ""))
    assert len(me.keep((address(50), ""))) == 50
    with raises_refusal(me, 422, "ADDRESSBOOK_QUOTA_REACHED", quota=50, current=50):
        me.keep((address(51), ""))
    assert len(me.keep((address(50), ""))) == 50, "who is there needs no room"
    demo.command("account", "plan", customer.id, "--plan", "PRO")
    assert len(me.keep(*((address(number), "") for number in range(51, 151)))) == 150


def test_an_entry_that_is_paid_for_stays(demo: Demo, customer: Account, me: Client) -> None:
    me.keep((DAVE, ""), (FRANK, ""))
    plan = ("addressbook", "plan", "--account", customer.id)
    demo.command(*plan, "--plan", "LITE", "--expires", "2999-01-01T00:00:00Z", DAVE)
    demo.command(*plan, "--plan", "FREE", "--owner-authorized", FRANK)
    entries = {entry.address: entry for entry in me.book()}
    assert (entries[DAVE].plan, entries[DAVE].is_paid) == ("LITE", True)
    assert (entries[FRANK].plan, entries[FRANK].is_paid, entries[FRANK].expires_at) == ("FREE", False, None)
    for book_address in (DAVE, FRANK):
        with raises_refusal(me, 409, "ADDRESSBOOK_ENTRY_NOT_DELETABLE"):
            me.forget(book_address)
    demo.command(*plan, "--plan", "PRO", "--expires", "2020-01-01T00:00:00Z", DAVE)
    lapsed = {entry.address: entry for entry in me.book()}[DAVE]
    assert (lapsed.plan, lapsed.is_paid) == ("PRO", False)
    assert lapsed.expires_at is not None
    assert lapsed.expires_at.startswith("2020-01-01T00:00:00")


# --- bundles ---


def test_a_bundle_from_its_making_to_its_end(me: Client) -> None:
    me.keep(*((address(number), "") for number in (1, 2, 3)))
    with costs(me, 1):
        bundle = me.bundled("  Savings ", address(1), address(2))
    assert (bundle.name, set(bundle.addresses)) == ("Savings", {address(1), address(2)})
    with costs(me, 2):
        assert me.bundles() == [bundle]
        assert me.bundle(bundle.id) == bundle
    with costs(me, 2):
        assert me.rename(bundle.id, "Spending").name == "Spending"
        assert me.rename(bundle.id, "Spending").name == "Spending"
    with costs(me, 2):
        assert len(me.join(bundle.id, address(3)).addresses) == 3
        assert len(me.join(bundle.id, address(3)).addresses) == 3
    with costs(me, 1):
        assert set(me.leave(bundle.id, address(3)).addresses) == {address(1), address(2)}
    with raises_refusal(me, 404, "ADDRESSBOOK_ENTRY_NOT_FOUND"):
        me.leave(bundle.id, address(3))
    me.leave(bundle.id, address(2))
    with raises_refusal(me, 422, "BUNDLE_EMPTY"):
        me.leave(bundle.id, address(1))
    with costs(me, 1):
        me.unbundle(bundle.id)
    assert me.bundles() == []
    assert len(me.book()) == 3, "the addresses stay"


def test_two_bundles_have_neither_name_nor_members_in_common(me: Client) -> None:
    me.keep(*((address(number), "") for number in (1, 2, 3)))
    first = me.bundled("first", address(1), address(2))
    with raises_refusal(me, 409, "BUNDLE_NAME_TAKEN", name="first"):
        me.bundled("first", address(1))
    with raises_refusal(me, 409, "BUNDLE_MEMBERS_ALREADY_BUNDLED", bundle_id=first.id):
        me.bundled("copy", address(2), address(1))
    second = me.bundled("FIRST", address(1))
    with raises_refusal(me, 409, "BUNDLE_NAME_TAKEN", name="first"):
        me.rename(second.id, "first")
    with raises_refusal(me, 409, "BUNDLE_MEMBERS_ALREADY_BUNDLED", bundle_id=first.id):
        me.join(second.id, address(2))
    with raises_refusal(me, 409, "BUNDLE_MEMBERS_ALREADY_BUNDLED", bundle_id=second.id):
        me.leave(first.id, address(2))


def test_what_a_bundle_cannot_be(me: Client) -> None:
    me.keep(*((address(number), "") for number in range(1, 13)))
    with raises_refusal(me, 422, "BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK", addresses=[address(99)]):
        me.bundled("strangers", address(1), address(99))
    with raises_refusal(me, 422, "BUNDLE_SIZE_LIMIT_EXCEEDED", limit=10):
        me.bundled("large", *(address(number) for number in range(1, 12)))
    full = me.bundled("full", *(address(number) for number in range(1, 11)))
    with raises_refusal(me, 422, "BUNDLE_SIZE_LIMIT_EXCEEDED", limit=10):
        me.join(full.id, address(11))
    small = me.bundled("small", address(1))
    with raises_refusal(me, 422, "BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK", addresses=[address(99)]):
        me.join(small.id, address(99))
    for number in range(2, 5):
        me.bundled(f"bundle {number}", address(number))
    with raises_refusal(me, 422, "BUNDLE_QUOTA_REACHED", quota=5):
        me.bundled("sixth", address(7))
    for name in ("", "  \u2003", "x" * 256):
        with costs(me, 0):
            assert send(me, "/bundles", "POST", {"name": name, "addresses": [address(8)]}).status == 400
    with costs(me, 0):
        assert send(me, "/bundles", "POST", {"name": "empty", "addresses": []}).status == 400


def test_a_bundle_that_is_not_there(me: Client) -> None:
    me.keep((DAVE, ""))
    for bundle_id in (NOWHERE, "an-older-kind-of-id"):
        with raises_refusal(me, 404, "BUNDLE_NOT_FOUND"):
            me.bundle(bundle_id)
        with raises_refusal(me, 404, "BUNDLE_NOT_FOUND"):
            me.rename(bundle_id, "x")
        with raises_refusal(me, 404, "BUNDLE_NOT_FOUND"):
            me.join(bundle_id, DAVE)
        with raises_refusal(me, 404, "BUNDLE_NOT_FOUND"):
            me.leave(bundle_id, DAVE)
        with raises_refusal(me, 404, "BUNDLE_NOT_FOUND"):
            me.unbundle(bundle_id)


def test_a_deleted_entry_leaves_its_bundles_but_never_empties_one(me: Client) -> None:
    me.keep(*((address(number), "") for number in (1, 2, 3)))
    bundle = me.bundled("pair", address(1), address(2))
    me.forget(address(1))
    assert me.bundle(bundle.id).addresses == [address(2)]
    with raises_refusal(me, 409, "ADDRESSBOOK_ENTRY_NOT_DELETABLE"):
        me.forget(address(2))
    me.bundled("three", address(3), address(2))
    with raises_refusal(me, 409, "ADDRESSBOOK_ENTRY_NOT_DELETABLE"):
        me.forget(address(3))


# --- for another account ---


def test_who_was_delegated_to_acts_for_the_other_and_pays(demo: Demo, customer: Account, me: Client) -> None:
    owner = demo.account(f"owner {next(NUMBER)}", grants=("portfolio",))
    theirs = demo.client(owner.key)
    acting = demo.client(customer.key, X_Delegate_For=owner.id)
    with raises_refusal(acting, 404, "DELEGATE_NOT_FOUND"):
        acting.book()
    demo.command("account", "delegate", owner.id, "--to", customer.id)
    with costs(theirs, 0), costs(me, 2):
        acting.keep((DAVE, "for you"))
        bundle = acting.bundled("for you", DAVE)
    assert me.book() == []
    assert [entry.label for entry in theirs.book()] == ["for you"]
    assert theirs.bundles() == [bundle]
    demo.command("account", "delegate", owner.id, "--to", customer.id, "--withdraw")
    with raises_refusal(acting, 404, "DELEGATE_NOT_FOUND"):
        acting.bundles()
    with raises_refusal(demo.client(customer.key, X_Delegate_For="nobody"), 404, "DELEGATE_NOT_FOUND"):
        demo.client(customer.key, X_Delegate_For="nobody").book()
