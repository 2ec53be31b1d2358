"""Two tenants on one server: what belongs to one is, to the other, exactly as if it were not there."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from chainfolio.api.request import MAX_BODY
from chainfolio.api.routes import ROUTES
from chainfolio.storage.state import audit, delegations, virtual_users
from tests.api.fakes import KEY
from tests.api.tenants import ApiResponse, Tenant, World, a_world, wallet

A, B, C = (wallet(number) for number in (1, 2, 3))
NOBODYS = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
async def world(state_url: str) -> AsyncIterator[World]:
    async with a_world(state_url) as world:
        yield world


@pytest.fixture
async def ann(world: World) -> Tenant:
    """Return a tenant with objects of every kind."""
    tenant = world.tenant("ann")
    await tenant.book(A, B)
    return tenant


@pytest.fixture
def eve(world: World) -> Tenant:
    return world.tenant("eve")


def own_virtual_user(world: World, tenant: Tenant) -> str:
    id = str(uuid.uuid4())
    document = b'[{"chain":"ethereum","contract":"native","amount":"1.5"}]'
    world.state.database.write(lambda tx: virtual_users.add(tx, tenant.account, id, "BALANCE", "Cold", document, 1))
    return id


# Every route with an object's name in it, as (method, path, body); `{}` is the object.
BUNDLES = [
    ("GET", "/v1/bundles/{}", None),
    ("PATCH", "/v1/bundles/{}", {"name": "mine"}),
    ("DELETE", "/v1/bundles/{}", None),
    ("POST", "/v1/bundles/{}/addresses", {"address": C}),
    ("DELETE", "/v1/bundles/{}/addresses/" + A, None),
    ("DELETE", "/v1/bundles/{}/addresses/" + C, None),
]
ENTRIES = [("PATCH", "/v1/addressbook/{}", {"label": "mine"}), ("DELETE", "/v1/addressbook/{}", None)]


def test_every_route_with_an_object_in_its_path_is_attacked_here() -> None:
    attacked = {(method, re.sub("0x.*", "{}", path)) for method, path, _ in (*BUNDLES, *ENTRIES)}
    object_routes = {
        (route.method, re.sub(r"\{\w+\}", "{}", route.path))
        for route in ROUTES
        if "{" in route.path and route.envelope == "coded"
    }
    assert object_routes == attacked


@pytest.mark.parametrize(("method", "path", "body"), BUNDLES)
async def test_a_foreign_bundle_is_as_unknown_as_one_that_is_not(
    ann: Tenant, eve: Tenant, method: str, path: str, body: Any
) -> None:
    anns = await ann.bundle("x", A, B)
    await eve.book(A, C)
    before = await ann.read_all(), await eve.read_all()
    foreign = await eve.ask(method, path.format(anns), body)
    assert (foreign.status, foreign.code) == (404, "BUNDLE_NOT_FOUND")
    for unknown in (NOBODYS, "65f0c0ffee", anns.upper(), f"{anns}%00", "%FF", "%F0%9F%98%80", "a" * 3000, "%27--"):
        assert await eve.ask(method, path.format(unknown), body) == foreign
    assert (await ann.read_all(), await eve.read_all()) == before


@pytest.mark.parametrize(("method", "path", "body"), ENTRIES)
async def test_a_foreign_entry_is_as_unknown_as_one_that_is_not(
    ann: Tenant, eve: Tenant, method: str, path: str, body: Any
) -> None:
    before = await ann.read_all()
    foreign = await eve.ask(method, path.format(A), body)
    assert (foreign.status, foreign.code) == (404, "ADDRESSBOOK_ENTRY_NOT_FOUND")
    assert await eve.ask(method, path.format(C), body) == foreign
    assert await ann.read_all() == before


async def test_what_one_has_takes_nothing_from_the_other(ann: Tenant, eve: Tenant) -> None:
    await ann.bundle("x", A, B)
    response = await eve.ask("POST", "/v1/bundles", {"name": "x", "addresses": [A, B]})
    assert response.code == "BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK"
    await eve.book(A, B)
    await eve.bundle("x", A, B)
    assert (await eve.ask("DELETE", f"/v1/addressbook/{A}")).status == 204
    assert (await ann.ask("GET", "/v1/bundles")).json["data"][0]["addresses"] == [A, B]


async def test_foreign_virtual_users_are_forbidden_like_unknown_ones(world: World, ann: Tenant, eve: Tenant) -> None:
    anns, eves = own_virtual_user(world, ann), own_virtual_user(world, eve)
    path = "/v1/virtual-users/portfolio?addresses=virtual:{}"
    foreign = await eve.ask("GET", path.format(anns))
    assert (foreign.status, sorted(foreign.json)) == (403, ["error", "message"])
    for unknown in (NOBODYS, str(uuid.uuid1()), f"{eves},virtual:{anns}", f"{eves}&addresses=virtual:{NOBODYS}"):
        assert await eve.ask("GET", path.format(unknown)) == foreign
    assert world.engine.calls == []
    assert (await eve.ask("GET", path.format(eves))).status == 200
    (entry,) = (await eve.ask("GET", "/v1/virtual-users")).json
    assert entry == {"address": f"virtual:{eves}", "type": "BALANCE", "label": "Cold"}


async def test_subscriptions_are_of_one_account(ann: Tenant, eve: Tenant) -> None:
    body = {"addresses": [{"address": A}]}
    assert [(await each.ask("POST", "/v1/subscribe-snapshot", body)).status for each in (ann, eve, ann)] == [
        200,
        200,
        409,
    ]


async def test_a_delegate_acts_for_who_delegated(world: World, ann: Tenant, eve: Tenant) -> None:
    anns = await ann.bundle("x", A, B)
    world.state.database.write(lambda tx: delegations.delegate(tx, ann.account, eve.account, 5))

    async def act(method: str, path: str, body: Any = None) -> ApiResponse:
        return await eve.ask(method, path, body, X_Delegate_For=ann.account)

    assert await act("GET", "/v1/addressbook") == await ann.ask("GET", "/v1/addressbook")
    assert (await act("GET", f"/v1/bundles/{anns}")).json["data"]["name"] == "x"
    assert (await act("PATCH", f"/v1/bundles/{anns}", {"name": "y"})).status == 200
    assert (await act("POST", "/v1/addressbook", {"entries": [{"address": C}]})).status == 200
    assert len((await ann.ask("GET", "/v1/addressbook")).json["data"]) == 3
    assert (await eve.ask("GET", "/v1/addressbook")).json == {"data": []}
    notes = world.state.database.read(lambda tx: audit.entries(tx, ann.account))
    changes = [note for note in notes if note.action == "changed by a delegate"]
    assert [note.detail for note in changes] == [
        {"by": eve.account, "call": "rename_bundle"},
        {"by": eve.account, "call": "add_entries"},
    ]
    assert {note.actor for note in changes} == {world.state.keys(eve.account)[0].id}
    assert (await ann.ask("GET", "/v1/addressbook", X_Delegate_For=eve.account)).code == "DELEGATE_NOT_FOUND"
    world.state.database.write(lambda tx: delegations.withdraw(tx, ann.account, eve.account, 6))
    assert (await act("GET", "/v1/addressbook")).code == "DELEGATE_NOT_FOUND"


EVERY = [
    *BUNDLES,
    *ENTRIES,
    ("GET", "/v1/addressbook", None),
    ("GET", "/v1/bundles", None),
    ("POST", "/v1/addressbook", {"entries": [{"address": A}]}),
    ("POST", "/v1/bundles", {"name": "z", "addresses": [A]}),
]


@pytest.mark.parametrize(("method", "path", "body"), EVERY)
async def test_who_did_not_delegate_is_as_unknown_as_one_that_is_not(
    ann: Tenant, eve: Tenant, method: str, path: str, body: Any
) -> None:
    anns = await ann.bundle("x", A, B)
    path = path.format(anns if "bundles" in path else A)
    before = await ann.read_all()
    foreign = await eve.ask(method, path, body, X_Delegate_For=ann.account)
    assert (foreign.status, foreign.code) == (404, "DELEGATE_NOT_FOUND")
    for unknown in ("acc_x", "", "😀", f"{ann.account},{eve.account}", "'; --", eve.account):
        assert await eve.ask(method, path, body, X_Delegate_For=unknown) == foreign
    assert await ann.read_all() == before


async def test_without_a_key_nothing_is_told(world: World, ann: Tenant) -> None:
    stranger = Tenant(world.session, world.base, "", KEY)
    for method, path, body in EVERY:
        response = await stranger.ask(method, path.format(A), body)
        assert (response.status, list(response.json)) == (401, ["message"])


def test_bodies_take_no_field_that_they_do_not_know() -> None:
    bodies = [route.arguments["body"] for route in ROUTES if "body" in route.arguments]
    assert len(bodies) >= 6
    waiting = list(msgspec.inspect.multi_type_info(bodies))
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, msgspec.inspect.StructType):
            assert kind.forbid_unknown_fields, kind.cls
            waiting += [field.type for field in kind.fields]
        waiting += [kind.item_type] if isinstance(kind, msgspec.inspect.ListType) else []


async def test_a_body_that_is_too_long_is_not_read(ann: Tenant) -> None:
    import io

    async with ann.session.post(
        f"{ann.base}/v1/addressbook",
        data=io.BytesIO(b'{"entries":' + b" " * MAX_BODY + b"[]}"),
        headers={"Authorization": f"Bearer {ann.key}", "Content-Type": "application/json"},
    ) as answer:
        assert answer.status == 413
