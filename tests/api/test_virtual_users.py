"""Virtual users and subscriptions over HTTP: owners, limits, and the calls of the engine."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from chainfolio.api.router import Route, single_cost
from chainfolio.api.routes import ROUTES
from chainfolio.assets import account
from chainfolio.contracts import VirtualHolding, VirtualUser
from chainfolio.errors import StorageFull
from chainfolio.portfolio.facts import Options
from chainfolio.storage.state import subscriptions, virtual_users
from tests.api.fakes import SOL
from tests.api.tenants import ApiResponse, Tenant, World, a_world, wallet

A, B = wallet(1), wallet(2)
BALANCE = b'[{"chain":"ethereum","contract":"native","amount":"1.5"}]'


@pytest.fixture
async def world(state_url: str) -> AsyncIterator[World]:
    async with a_world(state_url) as world:
        yield world


@pytest.fixture
def ann(world: World) -> Tenant:
    return world.tenant("ann")


def create_virtual_user(world: World, tenant: Tenant, type: str = "BALANCE", document: bytes = BALANCE) -> VirtualUser:
    id = str(uuid.uuid4())
    label, owner = f"my {type}", tenant.account
    return world.state.database.write(lambda tx: virtual_users.add(tx, owner, id, type, label, document, 1))


async def portfolio(tenant: Tenant, addresses: str, options: str = "") -> ApiResponse:
    return await tenant.ask("GET", f"/v1/virtual-users/portfolio?addresses={addresses}{options}")


async def test_virtual_users_are_listed_in_the_order_they_were_added(world: World, ann: Tenant) -> None:
    assert (await ann.ask("GET", "/v1/virtual-users")).json == []
    first = create_virtual_user(world, ann)
    second = create_virtual_user(world, ann, "GROUP", f'{{"addresses":["{A}"]}}'.encode())
    assert (await ann.ask("GET", "/v1/virtual-users")).json == [
        {"address": f"virtual:{first.id}", "type": "BALANCE", "label": "my BALANCE"},
        {"address": f"virtual:{second.id}", "type": "GROUP", "label": "my GROUP"},
    ]


async def test_the_engine_is_asked_for_each_once_in_order(world: World, ann: Tenant) -> None:
    first, second = (
        create_virtual_user(world, ann),
        create_virtual_user(world, ann, "GROUP", f'{{"addresses":["{A}"]}}'.encode()),
    )
    addresses = f"virtual:{second.id.upper()},virtual:{first.id}&addresses=virtual:{second.id}"
    response = await portfolio(ann, addresses, "&includeImages=true&waitForSync=true&includeExplorerUrls=true")
    assert [each["address"] for each in response.json] == [f"virtual:{second.id}", f"virtual:{first.id}"]
    ((name, (users, options, wait)),) = world.engine.calls
    assert (name, wait, options) == ("virtual", True, Options(images=True, explorer_urls=True, rates=True))
    assert users == [
        VirtualUser(second.id, "GROUP", "my GROUP", (), (A,)),
        VirtualUser(first.id, "BALANCE", "my BALANCE", (VirtualHolding("1.5", "ethereum"),), ()),
    ]


async def test_aggregated_is_one_portfolio(world: World, ann: Tenant) -> None:
    ids = [f"virtual:{create_virtual_user(world, ann).id}" for _ in "12"]
    response = await portfolio(ann, ",".join(ids), "&aggregated=true")
    assert [each["address"] for each in response.json] == [",".join(ids)]


@pytest.mark.parametrize(
    "addresses",
    [
        "",
        "virtual:",
        "virtual:1",
        A,
        SOL,
        f"virtual:{uuid.UUID(int=1)},",
        f"VIRTUAL:{uuid.UUID(int=1)}",
        f"virtual:{uuid.UUID(int=1).hex}",
        f"virtual:{uuid.UUID(int=1)}%00",
        f"%20virtual:{uuid.UUID(int=1)}",
        ",".join(f"virtual:{uuid.UUID(int=number)}" for number in range(1, 12)),
    ],
)
async def test_what_is_no_virtual_user_or_too_many_is_400(world: World, ann: Tenant, addresses: str) -> None:
    response = await portfolio(ann, addresses)
    assert (response.status, response.json["error"], list(response.json["details"])) == (
        400,
        "Validation Failed",
        ["query"],
    )
    assert world.engine.calls == []


async def test_ten_are_answered_in_one_call(world: World, ann: Tenant) -> None:
    ids = [f"virtual:{create_virtual_user(world, ann).id}" for _ in range(10)]
    assert len((await portfolio(ann, ",".join([*ids, *ids]))).json) == 10


# --- subscriptions ---------------------------------------------------------------------------------------------------


async def subscribe(tenant: Tenant, *snapshot_route: Any) -> ApiResponse:
    return await tenant.ask("POST", "/v1/subscribe-snapshot", {"addresses": snapshot_route})


async def test_what_is_subscribed_to_is_watched_until_the_subscription_ends(world: World, ann: Tenant) -> None:
    response = await subscribe(ann, {"address": A.replace("0x", "0X")}, {"address": SOL})
    assert response.status == 200
    ends = {
        each.address: each.expires_us
        for each in world.state.database.read(lambda tx: subscriptions.every(tx, ann.account))
    }
    subscribed = {account(A): ends[A], account(SOL): ends[SOL]}
    assert world.engine.calls == [("watch_subscribed", (ann.account, subscribed))]


async def test_a_refused_subscription_watches_no_address(world: World, ann: Tenant) -> None:
    assert (await subscribe(ann, {"address": A})).status == 200
    world.engine.calls.clear()
    assert (
        await subscribe(ann, {"address": A}, *({"address": wallet(number)} for number in range(2, 60)))
    ).status == 409
    assert (await subscribe(ann)).status == 400
    poor = world.tenant("poor", credits=1199)
    assert (await subscribe(poor, {"address": B})).status == 402
    assert world.engine.calls == []


async def test_a_sale_stands_if_its_places_cannot_be_stored_now(world: World, ann: Tenant) -> None:
    world.engine.failure = StorageFull("tail")
    assert (await subscribe(ann, {"address": A})).status == 200
    now_us = world.state.clock.now_us()
    sold = world.state.database.read(lambda tx: subscriptions.sold(tx, now_us))
    assert [(owner, address) for owner, address, _ in sold] == [(ann.account, A)]


async def test_subscribing_says_until_when(world: World, ann: Tenant) -> None:
    response = await subscribe(ann, {"address": A.replace("0x", "0X"), "description": " Main "}, {"address": SOL})
    assert (response.status, response.json["message"]) == (200, "2 addresses are subscribed to")
    first, second = response.json["subscriptions"]
    assert (first["address"], first["description"]) == (A, "Main")
    assert (second["address"], second["description"]) == (SOL, "")
    assert int(first["expiresAt"][:4]) == int(first["beganAt"][:4]) + 1
    assert await world.state.subscribed(ann.account, [A, B, SOL]) == {A, SOL}


async def test_what_is_subscribed_to_is_refused_with_the_rest(world: World, ann: Tenant) -> None:
    await subscribe(ann, {"address": A})
    response = await subscribe(ann, {"address": B}, {"address": A})
    assert (response.status, sorted(response.json), response.json["addresses"]) == (
        409,
        ["addresses", "error", "message"],
        [A],
    )
    assert await world.state.subscribed(ann.account, [A, B]) == {A}


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [A],
        [{"address": B}, {"address": B.replace("0x", "0X")}],
        [{"address": "0x12"}],
        [{"address": A, "years": 9}],
        [{"description": "x"}],
        [{"address": A, "description": "x" * 256}],
        [{"address": wallet(number)} for number in range(1, 102)],
    ],
)
async def test_a_body_that_does_not_fit_is_told_so(world: World, ann: Tenant, entries: list[Any]) -> None:
    response = await subscribe(ann, *entries)
    assert (response.status, response.json["error"], list(response.json["details"])) == (
        400,
        "Validation Failed",
        ["body"],
    )
    assert await world.state.subscribed(ann.account, [A, B]) == set()


# --- prices ----------------------------------------------------------------------------------------------------------


def route(name: str) -> Route:
    return next(each for each in ROUTES if each.name == name)


def test_what_a_call_costs_depends_on_what_it_asks_for() -> None:
    users, snapshot_route = route("virtual_users_portfolio"), route("subscribe_snapshot")
    query = users.arguments["query"](addresses=("1", "2", "3"))
    assert (users.cost, users.units({"query": query})) == (1, 3)
    body = msgspec.convert({"addresses": [{"address": A}, {"address": B}]}, snapshot_route.arguments["body"])
    assert (snapshot_route.cost, snapshot_route.units({"body": body})) == (1200, 2)
    assert {each.units for each in ROUTES if each not in (users, snapshot_route)} == {single_cost}


def test_what_tenants_keep_costs_one_credit_and_needs_the_portfolio_grant() -> None:
    routes = [each for each in ROUTES if each.path.startswith(("/v1/addressbook", "/v1/bundles"))]
    assert len(routes) == 11
    assert {(each.cost, each.needs, each.envelope, each.bucket) for each in routes} == {
        (1, "portfolio", "coded", "all")
    }
    assert {each.needs for each in ROUTES if each.path.startswith("/v1/virtual-users")} == {"pro"}
