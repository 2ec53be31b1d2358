"""What is asked for at once, by one tenant or by two, over HTTP and on either store: one gets it, and one pays."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from chainfolio.storage.state import delegations, virtual_users
from chainfolio.storage.state.ledger import Balance
from tests.api.tenants import Said, Tenant, World, a_world, wallet
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
    async with a_world(state_url) as made:
        yield made


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


async def at_once(*asked: tuple[Tenant, str, str, Any]) -> list[Said]:
    return list(await asyncio.gather(*(tenant.ask(method, path, body) for tenant, method, path, body in asked)))


def ends(said: list[Said]) -> list[int]:
    return sorted(each.status for each in said)


async def spent(world: World, tenant: Tenant) -> int:
    """What the account has paid, and nothing of it is on its way."""
    purse = await world.settled(tenant)
    assert purse == Balance(CREDITS - purse.earned, 0, purse.earned)
    return purse.earned


# --- one tenant, the same at once ------------------------------------------------------------------------------------


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_of_equal_bundles_asked_for_at_once_one_is_made_and_paid(world: World, ann: Tenant) -> None:
    before = await spent(world, ann)
    same = [(ann, "POST", "/v1/bundles", {"name": f"n{number}", "addresses": [A, B]}) for number in range(AT_ONCE)]
    said = await at_once(*same)
    assert ends(said) == [200] + [409] * (AT_ONCE - 1)
    (made,) = (each.json["data"] for each in said if each.status == 200)
    for each in said:
        if each.status == 409:
            assert (each.code, each.json["error"]["bundleId"]) == ("BUNDLE_MEMBERS_ALREADY_BUNDLED", made["id"])
    assert await spent(world, ann) == before + 1
    assert (await ann.ask("GET", "/v1/bundles")).json == {"data": [made]}


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_of_equal_names_asked_for_at_once_one_is_taken(world: World, ann: Tenant) -> None:
    one, two = await ann.bundle("one", A), await ann.bundle("two", B)
    said = await at_once(
        (ann, "POST", "/v1/bundles", {"name": "same", "addresses": [C]}),
        (ann, "PATCH", f"/v1/bundles/{one}", {"name": "same"}),
        (ann, "PATCH", f"/v1/bundles/{two}", {"name": "same"}),
    )
    assert ends(said) == [200, 409, 409]
    assert {each.code for each in said if each.status == 409} == {"BUNDLE_NAME_TAKEN"}
    names = [each["name"] for each in (await ann.ask("GET", "/v1/bundles")).json["data"]]
    assert names.count("same") == 1


async def test_a_subscription_asked_for_at_once_is_made_and_paid_once(world: World, ann: Tenant) -> None:
    before = await spent(world, ann)
    said = await at_once(*[(ann, "POST", SUBSCRIBE, {"addresses": [{"address": A}, {"address": B}]})] * AT_ONCE)
    assert ends(said) == [200] + [409] * (AT_ONCE - 1)
    assert {tuple(each.json["addresses"]) for each in said if each.status == 409} == {(A, B)}
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
        said = await at_once(*[(ann, "DELETE", path, None)] * AT_ONCE)
        assert ends(said) == [204] + [404] * (AT_ONCE - 1)
        assert {each.code for each in said if each.status == 404} == {code}
        assert await spent(world, ann) == before + 1


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_a_bundle_that_is_deleted_while_it_changes_is_gone_and_whoever_was_late_is_told(ann: Tenant) -> None:
    for _ in range(5):
        bundle = await ann.bundle("x", A, B)
        path = f"/v1/bundles/{bundle}"
        gone, *others = await at_once(
            (ann, "DELETE", path, None),
            (ann, "PATCH", path, {"name": "y"}),
            (ann, "GET", path, None),
            (ann, "POST", f"{path}/addresses", {"address": C}),
            (ann, "DELETE", f"{path}/addresses/{A}", None),
        )
        assert gone.status == 204
        assert {each.status for each in others} <= {200, 404}
        assert {each.code for each in others if each.status == 404} <= {"BUNDLE_NOT_FOUND"}
        assert (await ann.ask("GET", "/v1/bundles")).json == {"data": []}


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_no_bundle_has_a_member_that_is_in_no_address_book(ann: Tenant) -> None:
    for _ in range(5):
        await ann.book(C)
        bundle = await ann.bundle("x", A)
        out, joined, made = await at_once(
            (ann, "DELETE", f"/v1/addressbook/{C}", None),
            (ann, "POST", f"/v1/bundles/{bundle}/addresses", {"address": C}),
            (ann, "POST", "/v1/bundles", {"name": "z", "addresses": [B, C]}),
        )
        late = {"BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK"}
        assert out.status == 204
        assert {each.code for each in (joined, made) if each.status != 200} <= late
        book = {each["address"] for each in (await ann.ask("GET", "/v1/addressbook")).json["data"]}
        kept = (await ann.ask("GET", "/v1/bundles")).json["data"]
        assert book == {A, B}
        assert all(set(each["addresses"]) <= book for each in kept)
        for each in kept:
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
        said, _, again = await asyncio.gather(ann.ask("GET", path), remove(id), ann.ask("GET", path))
        assert {said.status, again.status} <= {200, 403}
        answered += ends([said, again]).count(200)
        assert (await ann.ask("GET", path)).status == 403
    assert await spent(world, ann) == before + answered
    assert (await ann.ask("GET", "/v1/virtual-users")).json == []


# --- two tenants at once ---------------------------------------------------------------------------------------------


@pytest.mark.slow("the same race over a second store", only=["postgresql*"])
async def test_two_tenants_who_make_the_same_at_once_each_get_theirs(world: World, ann: Tenant, eve: Tenant) -> None:
    before = [await spent(world, tenant) for tenant in (ann, eve)]
    bundle, book = {"name": "same", "addresses": [A, B]}, {"entries": [{"address": wallet(9), "label": "same"}]}
    asked = (("/v1/bundles", bundle), ("/v1/addressbook", book), (SUBSCRIBE, {"addresses": [{"address": A}]}))
    said = await at_once(*((tenant, "POST", path, body) for path, body in asked for tenant in (ann, eve)))
    assert ends(said) == [200] * 6
    assert [await spent(world, tenant) for tenant in (ann, eve)] == [paid + 1202 for paid in before]
    mine, theirs = said[0].json["data"], said[1].json["data"]
    assert mine["id"] != theirs["id"]
    assert (await ann.ask("GET", "/v1/bundles")).json == {"data": [mine]}
    assert (await eve.ask("GET", "/v1/bundles")).json == {"data": [theirs]}


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
    own = (ann, "POST", f"{path}/addresses", {"address": C}), (ann, "PATCH", path, {"name": "y"})
    said = await at_once(*attacks, *own, *attacks)
    assert ends([*said[:5], *said[7:]]) == [404] * 10
    assert {each.code for each in (*said[:5], *said[7:])} == {"BUNDLE_NOT_FOUND"}
    assert ends(said[5:7]) == [200, 200]
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

    async def act(number: int) -> Said:
        body = {"entries": [{"address": wallet(100 + number)}]}
        return await eve.ask("POST", "/v1/addressbook", body, X_Delegate_For=ann.account)

    assert delegate()
    early, late = ([act(number) for number in some] for some in (range(4), range(4, 8)))
    before, withdrawn, after = await asyncio.gather(
        asyncio.gather(*early), asyncio.to_thread(withdraw), asyncio.gather(*late)
    )
    said = [*before, *after]
    assert withdrawn
    assert {each.status for each in said} <= {200, 404}
    assert {each.code for each in said if each.status == 404} <= {"DELEGATE_NOT_FOUND"}
    book = {each["address"] for each in (await ann.ask("GET", "/v1/addressbook")).json["data"]}
    assert book == {A, B, C, *(wallet(100 + number) for number, each in enumerate(said) if each.status == 200)}
    assert (await act(9)).code == "DELEGATE_NOT_FOUND"
    assert len((await eve.ask("GET", "/v1/addressbook")).json["data"]) == 3
