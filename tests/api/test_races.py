"""Concurrent requests of one or two tenants, on either store: one succeeds, and one pays."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from chainfolio.storage.state import delegations, virtual_users
from chainfolio.storage.state.ledger import Balance
from tests.api.tenants import ApiResponse, Tenant, World, a_world, wallet
from tests.storage.stores import KINDS, Stores

A, B, C = (wallet(number) for number in (1, 2, 3))
CREDITS = 100_000
AT_ONCE = 8
SUBSCRIBE = "/v1/subscribe-snapshot"
DOCUMENT = b'[{"chain":"ethereum","contract":"native","amount":"1.5"}]'


@pytest.fixture(params=KINDS)
def state_url(request: pytest.FixtureRequest, stores: Stores) -> str:
    """A store of each kind, for each has its own locks."""
    return stores.url(request.param)


@pytest.fixture
async def world(state_url: str) -> AsyncIterator[World]:
    async with a_world(state_url) as world:
        yield world


@pytest.fixture
async def ann(world: World) -> Tenant:
    tenant = world.tenant("ann", credits=CREDITS)
    await tenant.book(A, B, C)
    return tenant


@pytest.fixture
async def eve(world: World) -> Tenant:
    tenant = world.tenant("eve", credits=CREDITS)
    await tenant.book(A, B, C)
    return tenant


async def at_once(*bodies: tuple[Tenant, str, str, Any]) -> list[ApiResponse]:
    return list(await asyncio.gather(*(tenant.ask(method, path, body) for tenant, method, path, body in bodies)))


def ends(responses: list[ApiResponse]) -> list[int]:
    return sorted(each.status for each in responses)


async def spent(world: World, tenant: Tenant) -> int:
    """Return what the account has paid; fail if credits are held."""
    purse = await world.settled_balance(tenant)
    assert purse == Balance(CREDITS - purse.earned, 0, purse.earned)
    return purse.earned


# --- one tenant, the same at once ------------------------------------------------------------------------------------


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_of_equal_bundles_asked_for_at_once_one_is_made_and_paid(world: World, ann: Tenant) -> None:
    before = await spent(world, ann)
    requests = [(ann, "POST", "/v1/bundles", {"name": f"n{number}", "addresses": [A, B]}) for number in range(AT_ONCE)]
    responses = await at_once(*requests)
    assert ends(responses) == [200] + [409] * (AT_ONCE - 1)
    (created,) = (each.json["data"] for each in responses if each.status == 200)
    for each in responses:
        if each.status == 409:
            assert (each.code, each.json["error"]["bundleId"]) == ("BUNDLE_MEMBERS_ALREADY_BUNDLED", created["id"])
    assert await spent(world, ann) == before + 1
    assert (await ann.ask("GET", "/v1/bundles")).json == {"data": [created]}


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_of_equal_names_asked_for_at_once_one_is_taken(world: World, ann: Tenant) -> None:
    first_bundle, second_bundle = await ann.bundle("one", A), await ann.bundle("two", B)
    responses = await at_once(
        (ann, "POST", "/v1/bundles", {"name": "same", "addresses": [C]}),
        (ann, "PATCH", f"/v1/bundles/{first_bundle}", {"name": "same"}),
        (ann, "PATCH", f"/v1/bundles/{second_bundle}", {"name": "same"}),
    )
    assert ends(responses) == [200, 409, 409]
    assert {each.code for each in responses if each.status == 409} == {"BUNDLE_NAME_TAKEN"}
    names = [each["name"] for each in (await ann.ask("GET", "/v1/bundles")).json["data"]]
    assert names.count("same") == 1


async def test_a_subscription_asked_for_at_once_is_made_and_paid_once(world: World, ann: Tenant) -> None:
    before = await spent(world, ann)
    responses = await at_once(*[(ann, "POST", SUBSCRIBE, {"addresses": [{"address": A}, {"address": B}]})] * AT_ONCE)
    assert ends(responses) == [200] + [409] * (AT_ONCE - 1)
    assert {tuple(each.json["addresses"]) for each in responses if each.status == 409} == {(A, B)}
    assert await spent(world, ann) == before + 2400


# --- one tenant, deleting at once ------------------------------------------------------------------------------------


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_what_is_deleted_at_once_is_deleted_once(world: World, ann: Tenant) -> None:
    bundle = await ann.bundle("x", A, B)
    for path, code in (
        (f"/v1/bundles/{bundle}", "BUNDLE_NOT_FOUND"),
        (f"/v1/addressbook/{C}", "ADDRESSBOOK_ENTRY_NOT_FOUND"),
    ):
        before = await spent(world, ann)
        responses = await at_once(*[(ann, "DELETE", path, None)] * AT_ONCE)
        assert ends(responses) == [204] + [404] * (AT_ONCE - 1)
        assert {each.code for each in responses if each.status == 404} == {code}
        assert await spent(world, ann) == before + 1


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_a_bundle_that_is_deleted_while_it_changes_is_gone_and_whoever_was_late_is_told(ann: Tenant) -> None:
    for _ in range(5):
        bundle = await ann.bundle("x", A, B)
        path = f"/v1/bundles/{bundle}"
        deletion, *changes = await at_once(
            (ann, "DELETE", path, None),
            (ann, "PATCH", path, {"name": "y"}),
            (ann, "GET", path, None),
            (ann, "POST", f"{path}/addresses", {"address": C}),
            (ann, "DELETE", f"{path}/addresses/{A}", None),
        )
        assert deletion.status == 204
        assert {each.status for each in changes} <= {200, 404}
        assert {each.code for each in changes if each.status == 404} <= {"BUNDLE_NOT_FOUND"}
        assert (await ann.ask("GET", "/v1/bundles")).json == {"data": []}


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_no_bundle_has_a_member_that_is_in_no_address_book(ann: Tenant) -> None:
    for _ in range(5):
        await ann.book(C)
        bundle = await ann.bundle("x", A)
        removal, joined, created = await at_once(
            (ann, "DELETE", f"/v1/addressbook/{C}", None),
            (ann, "POST", f"/v1/bundles/{bundle}/addresses", {"address": C}),
            (ann, "POST", "/v1/bundles", {"name": "z", "addresses": [B, C]}),
        )
        late = {"BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK"}
        assert removal.status == 204
        assert {each.code for each in (joined, created) if each.status != 200} <= late
        book = {each["address"] for each in (await ann.ask("GET", "/v1/addressbook")).json["data"]}
        bundles = (await ann.ask("GET", "/v1/bundles")).json["data"]
        assert book == {A, B}
        assert all(set(each["addresses"]) <= book for each in bundles)
        for each in bundles:
            assert (await ann.ask("DELETE", f"/v1/bundles/{each['id']}")).status == 204


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_the_portfolio_of_a_virtual_user_that_goes_is_there_or_forbidden(world: World, ann: Tenant) -> None:
    ids = [str(uuid.uuid4()) for _ in range(5)]
    for id in ids:
        world.state.database.write(
            partial(
                virtual_users.add,
                account_id=ann.account,
                id=id,
                type="BALANCE",
                label="Cold",
                document=DOCUMENT,
                now_us=1,
            )
        )
    before = await spent(world, ann)

    async def remove(id: str) -> None:
        await asyncio.to_thread(world.state.database.write, lambda tx: virtual_users.remove(tx, ann.account, id, 2))

    answered = 0
    for id in ids:
        path = f"/v1/virtual-users/portfolio?addresses=virtual:{id}"
        responses, _, repeated = await asyncio.gather(ann.ask("GET", path), remove(id), ann.ask("GET", path))
        assert {responses.status, repeated.status} <= {200, 403}
        answered += ends([responses, repeated]).count(200)
        assert (await ann.ask("GET", path)).status == 403
    assert await spent(world, ann) == before + answered
    assert (await ann.ask("GET", "/v1/virtual-users")).json == []


# --- two tenants at once ---------------------------------------------------------------------------------------------


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_two_tenants_who_make_the_same_at_once_each_get_theirs(world: World, ann: Tenant, eve: Tenant) -> None:
    before = [await spent(world, tenant) for tenant in (ann, eve)]
    bundle, book = {"name": "same", "addresses": [A, B]}, {"entries": [{"address": wallet(9), "label": "same"}]}
    bodies = (("/v1/bundles", bundle), ("/v1/addressbook", book), (SUBSCRIBE, {"addresses": [{"address": A}]}))
    responses = await at_once(*((tenant, "POST", path, body) for path, body in bodies for tenant in (ann, eve)))
    assert ends(responses) == [200] * 6
    assert [await spent(world, tenant) for tenant in (ann, eve)] == [spent_before + 1202 for spent_before in before]
    anns_bundle, eves_bundle = responses[0].json["data"], responses[1].json["data"]
    assert anns_bundle["id"] != eves_bundle["id"]
    assert (await ann.ask("GET", "/v1/bundles")).json == {"data": [anns_bundle]}
    assert (await eve.ask("GET", "/v1/bundles")).json == {"data": [eves_bundle]}


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_who_attacks_while_the_owner_changes_gets_nothing(world: World, ann: Tenant, eve: Tenant) -> None:
    bundle = await ann.bundle("x", A, B)
    path = f"/v1/bundles/{bundle}"
    before, purse = await eve.read_all(), await spent(world, eve)
    attacks = [
        (eve, "DELETE", path, None),
        (eve, "PATCH", path, {"name": "mine"}),
        (eve, "GET", path, None),
        (eve, "POST", f"{path}/addresses", {"address": C}),
        (eve, "DELETE", f"{path}/addresses/{A}", None),
    ]
    owner_calls = (ann, "POST", f"{path}/addresses", {"address": C}), (ann, "PATCH", path, {"name": "y"})
    responses = await at_once(*attacks, *owner_calls, *attacks)
    assert ends([*responses[:5], *responses[7:]]) == [404] * 10
    assert {each.code for each in (*responses[:5], *responses[7:])} == {"BUNDLE_NOT_FOUND"}
    assert ends(responses[5:7]) == [200, 200]
    assert (await ann.ask("GET", path)).json["data"] == {"id": bundle, "name": "y", "addresses": [A, B, C]}
    assert await spent(world, eve) == purse
    assert await eve.read_all() == before


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_the_days_of_a_foreign_subscription_are_forbidden_as_if_there_were_none(
    world: World, ann: Tenant, eve: Tenant
) -> None:
    assert (await ann.ask("POST", SUBSCRIBE, {"addresses": [{"address": A}]})).status == 200
    path = "/v1/historical?addresses={}&date=2024-02-29"
    foreign, unknown = await eve.ask("GET", path.format(A)), await eve.ask("GET", path.format(B))
    assert (foreign.status, unknown.status) == (403, 403)
    assert foreign.body.replace(A.encode(), b"") == unknown.body.replace(B.encode(), b"")
    assert (await ann.ask("GET", path.format(A))).status == 200
    assert (await ann.ask("GET", path.format(f"{A},{B}"))).status == 403


async def test_a_delegation_that_ends_meanwhile_ends_at_once(world: World, ann: Tenant, eve: Tenant) -> None:
    def delegate() -> bool:
        return world.state.database.write(lambda tx: delegations.delegate(tx, ann.account, eve.account, 5))

    def withdraw() -> bool:
        return world.state.database.write(lambda tx: delegations.withdraw(tx, ann.account, eve.account, 6))

    async def act(number: int) -> ApiResponse:
        body = {"entries": [{"address": wallet(100 + number)}]}
        return await eve.ask("POST", "/v1/addressbook", body, X_Delegate_For=ann.account)

    assert delegate()
    early, late = ([act(number) for number in numbers] for numbers in (range(4), range(4, 8)))
    before, withdrawn, after = await asyncio.gather(
        asyncio.gather(*early), asyncio.to_thread(withdraw), asyncio.gather(*late)
    )
    responses = [*before, *after]
    assert withdrawn
    assert {each.status for each in responses} <= {200, 404}
    assert {each.code for each in responses if each.status == 404} <= {"DELEGATE_NOT_FOUND"}
    book = {each["address"] for each in (await ann.ask("GET", "/v1/addressbook")).json["data"]}
    assert book == {A, B, C, *(wallet(100 + number) for number, each in enumerate(responses) if each.status == 200)}
    assert (await act(9)).code == "DELEGATE_NOT_FOUND"
    assert len((await eve.ask("GET", "/v1/addressbook")).json["data"]) == 3
