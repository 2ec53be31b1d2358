"""Costs of calls over HTTP on both databases: a success is paid once, everything else is free."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from chainfolio import errors
from chainfolio.api.router import AT_BLOCK
from chainfolio.engine.results import ApprovalsPage
from chainfolio.settings import Limits, Settings
from chainfolio.storage.state import delegations, ledger, schema, virtual_users
from chainfolio.storage.state.database import Statement
from chainfolio.storage.state.ledger import Balance
from tests.api import targets
from tests.api.fakes import ALICE, BOB, SOL, an_approval
from tests.api.furnished import DOCUMENT, GRANTS, bundle_of, furnish, request_of
from tests.api.targets import KEYED
from tests.api.tenants import ApiResponse, Tenant, World, a_world, wallet

WALLET = f"/v1/wallet?addresses={ALICE}"
AT_BLOCK_7 = f"/v1/portfolio/at-block?addresses={ALICE}&chainKey=ethereum&blockNumber=7"
SYNC = "/v1/sync-transactions", {"addresses": [ALICE]}
UNTOUCHED = Balance(1_000_000, 0, 0)


@pytest.fixture
async def world(state_url: str) -> AsyncIterator[World]:
    async with a_world(state_url) as is_made:
        yield is_made


@pytest.fixture
def ann(world: World) -> Tenant:
    """Return a tenant with every grant and objects of every kind."""
    tenant = world.tenant("ann", grants=GRANTS)
    furnish(world, tenant.account)
    return tenant


def limited(state_url: str, **limits: int) -> AbstractAsyncContextManager[World]:
    return a_world(state_url, Settings(limits=Limits(**limits)))


async def wait_until(fact: Any) -> None:
    for _ in range(500):
        if fact():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to it")


# --- what is charged -------------------------------------------------------------------------------------------------


async def test_a_success_costs_its_price_once(world: World, ann: Tenant) -> None:
    for route in KEYED:
        furnish(world, ann.account)
        before = await world.settled_balance(ann)
        response = await ann.ask(*request_of(route, ann.account))
        assert response.status in route.replies, (route.name, response.body)
        after = await world.settled_balance(ann)
        assert (before.available - after.available, after.earned - before.earned) == (route.cost, route.cost), (
            route.name
        )


@pytest.mark.parametrize(
    "failure",
    [
        errors.Unavailable("node", "down"),
        errors.BadAnswer("node", "lies"),
        errors.NotIndexed("ethereum", "logs", 1, 9),
        errors.HistoryUnavailable("node", 5, "pruned"),
        errors.NotSupported("nobody"),
        errors.NotFound("nothing"),
        errors.BadRequest("addresses", "cannot be meant"),
        errors.StoreError("lake", "gone"),
        RuntimeError("a bug"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_failure_of_the_engine_costs_nothing(world: World, ann: Tenant, failure: Exception) -> None:
    failed = 0
    for route in KEYED:
        furnish(world, ann.account)
        before = await world.settled_balance(ann)
        world.engine.failure = failure
        response = await ann.ask(*request_of(route, ann.account))
        cost = route.cost if response.status < 300 else 0
        failed += response.status >= 400
        assert (await world.settled_balance(ann)).available == before.available - cost, (route.name, response.status)
    assert failed >= 15, "the routes that ask the engine"


REFUSED: list[tuple[int, str, str, Any]] = [
    (400, "GET", "/v1/wallet", None),
    (400, "GET", "/v1/wallet?addresses=nonsense", None),
    (400, "GET", f"{WALLET}&chain=ethereum", None),
    (400, "GET", f"/v1/approvals/solana?addresses={ALICE}", None),
    (400, "GET", f"/v1/historical?addresses={ALICE}&date=9999-01-01", None),
    (400, "POST", "/v1/addressbook", b"{"),
    (400, "POST", "/v1/addressbook", {"entries": [{"address": "nonsense"}]}),
    (400, "POST", "/v1/subscribe-snapshot", {"addresses": []}),
    (403, "GET", f"/v1/historical?addresses={SOL}&date=2024-02-29", None),
    (403, "GET", f"/v1/virtual-users/portfolio?addresses=virtual:{targets.NOBODYS}", None),
    (404, "GET", "/v1/contract-protocol?contract=0x" + "00" * 20, None),
    (404, "GET", "/v1/beacon/validators/details/index/8", None),
    (404, "PATCH", f"/v1/addressbook/{SOL}", {"label": "x"}),
    (404, "DELETE", "/v1/bundles/nothing", None),
    (409, "POST", "/v1/bundles", {"name": "Treasury", "addresses": [ALICE]}),
    (409, "POST", "/v1/subscribe-snapshot", {"addresses": [{"address": ALICE}, {"address": BOB}]}),
    (413, "POST", "/v1/addressbook", b'{"entries":' + b" " * 2**20 + b"[]}"),
    (422, "POST", "/v1/bundles", {"name": "Other", "addresses": [SOL]}),
]


async def test_a_refusal_costs_nothing(world: World, ann: Tenant) -> None:
    for status, method, target, body in REFUSED:
        response = await ann.ask(method, target, body)
        assert response.status == status, (target, response.body)
        assert await world.settled_balance(ann) == UNTOUCHED, target
    response = await ann.ask("POST", "/v1/addressbook", None, Content_Type="text/plain")
    assert response.status == 415
    assert await world.settled_balance(ann) == UNTOUCHED


async def test_a_head_costs_what_its_get_costs_and_options_are_free(world: World) -> None:
    poor, rich = world.tenant("poor", grants=GRANTS, credits=0), world.tenant("rich", grants=GRANTS)
    for tenant in (poor, rich):
        furnish(world, tenant.account)
    for route in KEYED:
        _, target, _ = request_of(route, poor.account)
        assert (await poor.ask("OPTIONS", target)).status == 204
        if route.method == "GET":
            assert (await poor.ask("HEAD", target)).status == (402 if route.cost else 200), route.name
            _, target, _ = request_of(route, rich.account)
            before = await world.settled_balance(rich)
            assert (await rich.ask("HEAD", target)).status == 200, route.name
            assert (await world.settled_balance(rich)).earned - before.earned == route.cost, route.name
    assert await world.settled_balance(poor) == Balance(0, 0, 0)


async def test_virtual_users_cost_one_for_each_after_those_given_twice(world: World, ann: Tenant) -> None:
    ids = [str(uuid.UUID(int=number, version=4)) for number in range(1, 5)]
    for id in ids:
        world.state.database.write(
            lambda tx, id=id: virtual_users.add(tx, ann.account, id, "BALANCE", "", DOCUMENT, 1)  # type: ignore[misc]
        )
    spent = 0
    for options in ("", "&aggregated=true"):
        addresses = ",".join(f"virtual:{id}" for id in [*ids[:3], ids[0].upper()]) + f"&addresses=virtual:{ids[1]}"
        assert (await ann.ask("GET", f"/v1/virtual-users/portfolio?addresses={addresses}{options}")).status == 200
        spent += 3
        assert (await world.settled_balance(ann)).earned == spent


async def test_snapshots_cost_1200_an_address(world: World) -> None:
    rich, poor = world.tenant("rich", credits=2400), world.tenant("poor", credits=2399)
    body = {"addresses": [{"address": wallet(1)}, {"address": wallet(2)}]}
    assert (await rich.ask("POST", "/v1/subscribe-snapshot", body)).status == 200
    assert await world.settled_balance(rich) == Balance(0, 0, 2400)
    response = await poor.ask("POST", "/v1/subscribe-snapshot", body)
    assert response.status == 402
    fields = {name: value for name, value in response.json.items() if name.startswith("credits")}
    assert fields == {"creditsRequired": 2400, "creditsAvailable": 2399, "creditsNeeded": 2400}
    assert await world.settled_balance(poor) == Balance(2399, 0, 0)
    assert (await poor.ask("POST", "/v1/subscribe-snapshot", {"addresses": body["addresses"][:1]})).status == 200


async def test_nobody_spends_what_is_not_there(world: World) -> None:
    poor = world.tenant("poor", credits=5)
    world.engine.delay_s = 0.3
    responses = await asyncio.gather(*(poor.ask("GET", WALLET) for _ in range(20)))
    assert sorted(each.status for each in responses) == [200] * 5 + [402] * 15
    assert {each.json["creditsAvailable"] for each in responses if each.status == 402} == {0}
    assert await world.settled_balance(poor) == Balance(0, 0, 5)


async def test_credits_are_told_without_what_running_calls_hold(world: World, ann: Tenant) -> None:
    world.engine.delay_s = 60
    task = asyncio.create_task(ann.ask("GET", WALLET))
    await asyncio.wait_for(world.engine.called.wait(), 5)
    assert (await ann.ask("GET", "/v1/credits")).json == 999_999
    task.cancel()
    await world.settled_balance(ann)
    assert (await ann.ask("GET", "/v1/credits")).json == 1_000_000


# --- who leaves ------------------------------------------------------------------------------------------------------


async def connected(
    world: World, tenant: Tenant, line: str, body: str = "", extra_headers: str = "", door: Door | None = None
) -> asyncio.StreamWriter:
    """Send a request on a new connection with a tiny receive buffer; `door` gets it before."""
    endpoint = socket.socket()
    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    endpoint.setblocking(False)
    port = int(world.base.rpartition(":")[2])
    await asyncio.get_running_loop().sock_connect(endpoint, ("127.0.0.1", port))
    _, writer = await asyncio.open_connection(sock=endpoint, limit=1024)
    head = f"{line} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {tenant.key}\r\n{extra_headers}"
    content = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    if door is not None:
        door.client = writer
    writer.write(f"{head}{content}\r\n{body}".encode())
    return writer


async def test_who_leaves_before_the_answer_pays_nothing(world: World, ann: Tenant) -> None:
    world.engine.delay_s = 60
    writer = await connected(world, ann, f"GET {WALLET}")
    await asyncio.wait_for(world.engine.called.wait(), 5)
    assert world.held_credits(ann) == 1
    writer.close()
    assert await world.settled_balance(ann) == UNTOUCHED


async def test_who_leaves_in_the_middle_of_the_answer_pays_nothing(world: World, ann: Tenant) -> None:
    world.engine.page = ApprovalsPage(tuple(an_approval(height) for height in range(40_000)), None)
    writer = await connected(world, ann, f"GET /v1/approvals/ethereum?addresses={ALICE}")
    await wait_until(lambda: world.engine.finished.is_set())
    await asyncio.sleep(0.5)
    assert world.held_credits(ann) == 1, "the answer is longer than what the system takes"
    writer.transport.abort()
    assert await world.settled_balance(ann) == UNTOUCHED


async def test_an_answer_that_is_read_for_longer_than_reservations_last_is_paid(state_url: str) -> None:
    async with limited(state_url, hold_s=1) as world:
        ann = world.tenant("ann", grants=GRANTS)
        world.engine.page = ApprovalsPage(tuple(an_approval(height) for height in range(40_000)), None)
        loop = asyncio.get_running_loop()
        path = f"/v1/approvals/ethereum?addresses={ALICE}"
        head = f"GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {ann.key}\r\nConnection: close\r\n\r\n"
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", int(world.base.rpartition(":")[2])))
            await loop.sock_sendall(client, head.encode())
            await wait_until(lambda: world.state.database.read(ledger.totals)["reserve"][1] >= 5)
            assert world.held_credits(ann) == 1, "reserved anew, again and again, while the answer is being sent"
            while await asyncio.wait_for(loop.sock_recv(client, 2**20), 10):
                pass
        assert await world.settled_balance(ann) == Balance(999_999, 0, 1)


# --- who leaves while a change is made -------------------------------------------------------------------------------

WRITES = [route for route in KEYED if route.changes]
ALERTS = schema.alert_rules, schema.alert_targets, schema.alert_deliveries
WRITTEN = schema.entries, schema.bundles, schema.bundle_members, schema.subscriptions, schema.saved_queries, *ALERTS
_KEPT = [Statement(table.select().order_by(*table.primary_key)) for table in WRITTEN]


def stored_state(world: World) -> list[Any]:
    """Return the rows of all tables that changes write."""
    return world.state.database.read(lambda tx: [tx.rows(each) for each in _KEPT])


class Door:
    """Aborts the client before or after the transaction of its change, until the server notices."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, abort_point: str) -> None:
        self.run, self.abort_point = world.state.database.write_async, abort_point
        self.client: asyncio.StreamWriter | None = None
        self.noticed = asyncio.Event()
        monkeypatch.setattr(world.state.database, "write_async", self)

    async def __call__(self, work: Any) -> Any:
        if self.client is None or work.__module__ != "chainfolio.api.changes":
            return await self.run(work)
        client, self.client = self.client, None
        try:
            if self.abort_point == "after":
                await self.run(work)
            client.transport.abort()
            await asyncio.sleep(60)
            raise AssertionError("the server has not noticed that its client left")
        finally:
            self.noticed.set()


@pytest.mark.parametrize("abort_point", ["before", "after"])
@pytest.mark.parametrize("key_header", ["", "Idempotency-Key: k\r\n"], ids=["once", "by a key"])
async def test_a_change_is_made_and_paid_or_neither_when_its_client_leaves(
    world: World, ann: Tenant, monkeypatch: pytest.MonkeyPatch, abort_point: str, key_header: str
) -> None:
    door = Door(world, monkeypatch, abort_point)
    for route in WRITES:
        furnish(world, ann.account)
        before, purse = stored_state(world), await world.settled_balance(ann)
        method, target, body = request_of(route, ann.account)
        header = key_header.replace("k", route.name)
        door.noticed.clear()
        await connected(world, ann, f"{method} {target}", (body or b"").decode(), header, door)
        await asyncio.wait_for(door.noticed.wait(), 10)
        after = await world.settled_balance(ann)
        is_made = abort_point == "after"
        assert after.earned - purse.earned == (route.cost if is_made else 0), route.name
        if route.name != "sync_transactions":  # what it changes is in the engine's memory alone
            assert (stored_state(world) != before) == is_made, route.name
        if key_header:
            response = await ann.ask(method, target, body, Idempotency_Key=route.name)
            assert response.status in route.replies, (route.name, response.body)
            assert response.headers.get("Idempotency-Replayed") == ("true" if is_made else None), route.name
            assert (await world.settled_balance(ann)).earned - purse.earned == route.cost, route.name


async def test_who_leaves_while_a_change_waits_for_the_engine_pays_nothing(world: World, ann: Tenant) -> None:
    world.engine.delay_s = 60
    path, body = SYNC
    writer = await connected(world, ann, f"POST {path}", json.dumps(body), "Idempotency-Key: k\r\n")
    await asyncio.wait_for(world.engine.called.wait(), 5)
    writer.close()
    await asyncio.wait_for(world.engine.finished.wait(), 5)
    assert await world.settled_balance(ann) == UNTOUCHED
    world.engine.delay_s = 0
    response = await ann.ask("POST", path, body, Idempotency_Key="k")
    assert (response.status, response.headers.get("Idempotency-Replayed")) == (200, None), "the key was never claimed"
    assert (await world.settled_balance(ann)).earned == 1


async def test_credits_that_go_while_a_change_is_made_undo_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let in with enough; then another call takes them, before the change is paid."""
    poor = world.tenant("poor", credits=1)
    run = world.state.database.write_async

    async def poorer(work: Any) -> Any:
        if work.__module__ == "chainfolio.api.changes":
            world.state.database.write(lambda tx: ledger.credit(tx, poor.account, -1, 5, "spent elsewhere"))
        return await run(work)

    monkeypatch.setattr(world.state.database, "write_async", poorer)
    response = await poor.ask("POST", "/v1/addressbook", {"entries": [{"address": ALICE}]})
    assert (response.status, response.json["creditsAvailable"]) == (402, 0)
    monkeypatch.undo()
    assert stored_state(world)[0] == []
    assert await world.settled_balance(poor) == Balance(0, 0, 0)


# --- asked for twice -------------------------------------------------------------------------------------------------


async def test_a_change_that_is_asked_for_twice_is_made_and_paid_once(world: World, ann: Tenant) -> None:
    for route in WRITES:
        furnish(world, ann.account)
        before = await world.settled_balance(ann)
        request = request_of(route, ann.account)
        first = await ann.ask(*request, Idempotency_Key=route.name)
        repeats = [await ann.ask(*request, Idempotency_Key=route.name) for _ in range(3)]
        assert first.status in route.replies, first.body
        assert "Idempotency-Replayed" not in first.headers
        for each in repeats:
            assert each.headers.get("Idempotency-Replayed") == "true", route.name
            assert (each.status, each.body) == (first.status, first.body)
        assert (await world.settled_balance(ann)).earned - before.earned == route.cost, route.name


async def test_a_refusal_is_replayed_too(world: World, ann: Tenant) -> None:
    body = {"name": "Treasury", "addresses": [ALICE]}
    first = await ann.ask("POST", "/v1/bundles", body, Idempotency_Key="k")
    await ann.ask("DELETE", f"/v1/bundles/{bundle_of(ann.account)}")
    repeated = await ann.ask("POST", "/v1/bundles", body, Idempotency_Key="k")
    assert (first.status, repeated.status, repeated.body) == (409, 409, first.body)
    assert repeated.headers["Idempotency-Replayed"] == "true"
    assert (await world.settled_balance(ann)).earned == 1, "the deletion alone"


async def test_a_key_belongs_to_one_request_of_one_account(world: World, ann: Tenant) -> None:
    bob = world.tenant("bob", grants=GRANTS)
    furnish(world, bob.account)
    world.state.database.write(lambda tx: delegations.delegate(tx, bob.account, ann.account, 5))
    path, body = "/v1/addressbook", {"entries": [{"address": SOL}]}
    assert (await ann.ask("POST", path, body, Idempotency_Key="k")).status == 200
    responses: list[ApiResponse] = [
        await ann.ask("POST", path, {"entries": [{"address": wallet(1)}]}, Idempotency_Key="k"),
        await ann.ask("POST", path, body, Idempotency_Key="k", X_Delegate_For=bob.account),
        await ann.ask("POST", "/v1/bundles", {"name": "x", "addresses": [ALICE]}, Idempotency_Key="k"),
        await ann.ask("DELETE", f"/v1/addressbook/{ALICE}", Idempotency_Key="k"),
    ]
    assert [(each.status, each.code) for each in responses] == [(422, "IDEMPOTENCY_KEY_REUSED")] * 4
    assert (await ann.ask("POST", *SYNC, Idempotency_Key="k")).status == 422
    assert (await world.settled_balance(ann)).earned == 1
    assert (await bob.ask("POST", path, body, Idempotency_Key="k")).status == 200


async def test_of_equal_requests_at_once_one_is_made_and_paid_and_all_are_told_the_same(
    world: World, ann: Tenant
) -> None:
    for route in WRITES:
        furnish(world, ann.account)
        before = await world.settled_balance(ann)
        request = request_of(route, ann.account)
        responses = await asyncio.gather(
            *(ann.ask(*request, Idempotency_Key=f"{route.name} 1".replace(" ", "-")) for _ in range(6))
        )
        assert {each.status for each in responses} <= set(route.replies), (
            route.name,
            [each.body for each in responses],
        )
        assert len({each.body for each in responses}) == 1, route.name
        assert sum("Idempotency-Replayed" not in each.headers for each in responses) == 1, route.name
        assert (await world.settled_balance(ann)).earned - before.earned == route.cost, route.name


async def test_a_failure_frees_the_key(world: World, ann: Tenant) -> None:
    path, body = SYNC
    for failure, status in ((errors.Unavailable("node", "down"), 503), (RuntimeError("a bug"), 500)):
        world.engine.failure = failure
        assert (await ann.ask("POST", path, body, Idempotency_Key="k")).status == status
        assert await world.settled_balance(ann) == UNTOUCHED
    world.engine.failure = None
    response = await ann.ask("POST", path, body, Idempotency_Key="k")
    assert (response.status, response.headers.get("Idempotency-Replayed")) == (200, None)
    assert (await world.settled_balance(ann)).earned == 1


async def test_a_want_of_credits_frees_the_key(world: World) -> None:
    poor = world.tenant("poor", credits=0)
    path, body = SYNC
    assert (await poor.ask("POST", path, body, Idempotency_Key="k")).status == 402
    world.state.database.write(lambda tx: ledger.credit(tx, poor.account, 1, 5, ""))
    response = await poor.ask("POST", path, body, Idempotency_Key="k")
    assert (response.status, response.headers.get("Idempotency-Replayed")) == (200, None)
    assert await world.settled_balance(poor) == Balance(0, 0, 1)


async def test_a_key_that_is_none_is_refused_and_a_read_takes_none(world: World, ann: Tenant) -> None:
    path, body = SYNC
    for key in ("", " ", "two words", "k" * 256, "ключ"):
        response = await ann.ask("POST", path, body, Idempotency_Key=key)
        assert (response.status, list(response.json["details"])) == (400, ["headers"]), key
    assert await world.settled_balance(ann) == UNTOUCHED
    for _ in range(2):
        assert (await ann.ask("GET", WALLET, Idempotency_Key="k")).status == 200
    assert (await world.settled_balance(ann)).earned == 2


# --- how often -------------------------------------------------------------------------------------------------------


def statuses(responses: Iterable[ApiResponse]) -> list[int]:
    return [each.status for each in responses]


async def test_the_rate_is_one_of_a_key_over_all_routes_and_at_block_has_its_own(state_url: str) -> None:
    async with limited(state_url, per_minute=3, at_block_per_minute=2) as world:
        ann = world.tenant("ann", grants=GRANTS)
        _, second_key = world.state.create_key(ann.account, "second")
        second_tenant = Tenant(ann.session, ann.base, ann.account, second_key)
        paths = [WALLET, "/v1/credits", "/v1/addressbook", "/v1/chains", "/v1/beacon/validators/details/index/7"]
        responses = [await ann.ask("GET", path) for path in paths]
        assert statuses(responses) == [200, 200, 200, 429, 429]
        assert statuses([await ann.ask("GET", AT_BLOCK_7) for _ in range(4)]) == [200, 200, 429, 429]
        assert statuses([await second_tenant.ask("GET", path) for path in (WALLET, AT_BLOCK_7)]) == [200, 200]
        fields, wait = responses[-1].json, int(responses[-1].headers["Retry-After"])
        assert sorted(fields) == ["error", "message", "retryAfter", "retry_after"]
        assert fields["error"] == "Rate limit exceeded"
        assert fields["retryAfter"] == fields["retry_after"] == wait
        assert 50 <= wait <= 60
        assert (await world.settled_balance(ann)).earned == 6


async def test_a_key_has_360_requests_a_minute_and_100_at_blocks(world: World, ann: Tenant) -> None:
    assert {(await ann.ask("GET", "/v1/credits")).status for _ in range(360)} == {200}
    assert (await ann.ask("GET", WALLET)).status == 429
    assert {(await ann.ask("GET", AT_BLOCK_7)).status for _ in range(100)} == {200}
    assert (await ann.ask("GET", AT_BLOCK_7)).status == 429
    key = world.state.keys(ann.account)[0].id
    assert world.request_counts() == {(key, "all"): 360, (key, AT_BLOCK): 100}
    assert (await world.settled_balance(ann)).earned == 100


def fresh(address: str = ALICE) -> str:
    return f"/v1/portfolio?addresses={address}&waitForSync=true"


def ask_for_fresh(world: World, tenant: Tenant, addresses: Iterable[str]) -> list[asyncio.Task[ApiResponse]]:
    return [asyncio.create_task(tenant.ask("GET", fresh(address))) for address in addresses]


async def test_requests_for_fresh_data_beyond_the_places_stand_in_line_and_are_answered(state_url: str) -> None:
    async with limited(state_url, waiting_per_key=2, queued_per_key=3) as world:
        ann, bob = world.tenant("ann", grants=GRANTS), world.tenant("bob", grants=GRANTS)
        engine, addresses, running = world.engine, [wallet(each) for each in range(1, 6)], []
        engine.gate.clear()
        for number, address in enumerate(addresses, 1):  # one after another, so that their order is known
            running += ask_for_fresh(world, ann, [address])
            await wait_until(lambda number=number: world.held_credits(ann) == number)
        assert len(engine.calls) == 2
        response = await ann.ask("GET", fresh())
        assert (response.status, response.headers["Retry-After"], response.json["retryAfter"]) == (429, "1", 1)
        other_tasks = ask_for_fresh(world, bob, [BOB])
        await wait_until(lambda: len(engine.calls) == 3)
        engine.gate.set()
        assert statuses(await asyncio.gather(*running, *other_tasks)) == [200] * 6
        served_addresses = [arguments[0][0].address for _, arguments in engine.calls]
        assert served_addresses == [*addresses[:2], BOB, *addresses[2:]], (
            "other keys wait for nobody, the line keeps its order"
        )
        assert [(await world.settled_balance(each)).earned for each in (ann, bob)] == [5, 1]


async def test_a_client_that_leaves_the_line_frees_its_place_and_pays_nothing(state_url: str) -> None:
    async with limited(state_url, waiting_per_key=1, queued_per_key=2) as world:
        ann = world.tenant("ann", grants=GRANTS)
        world.engine.gate.clear()
        (first,) = ask_for_fresh(world, ann, [wallet(1)])
        await wait_until(lambda: len(world.engine.calls) == 1)
        (second,) = ask_for_fresh(world, ann, [wallet(2)])
        await wait_until(lambda: world.held_credits(ann) == 2)
        second.cancel()
        await wait_until(lambda: world.held_credits(ann) == 1)
        later = ask_for_fresh(world, ann, [wallet(3), wallet(4)])
        await wait_until(lambda: world.held_credits(ann) == 3)
        first.cancel()
        await wait_until(lambda: len(world.engine.calls) == 2)
        world.engine.gate.set()
        assert statuses(await asyncio.gather(*later)) == [200, 200]
        assert (await world.settled_balance(ann)).earned == 2


async def test_a_request_whose_time_is_over_in_line_is_503_and_pays_nothing(state_url: str) -> None:
    async with limited(state_url, waiting_per_key=1, request_s=1) as world:
        ann = world.tenant("ann", grants=GRANTS)
        world.engine.gate.clear()
        responses = await asyncio.gather(*ask_for_fresh(world, ann, [wallet(each) for each in (1, 2, 3)]))
        assert [(each.status, each.headers["Retry-After"]) for each in responses] == [(503, "5")] * 3
        assert await world.settled_balance(ann) == UNTOUCHED
        world.engine.gate.set()
        assert (await ann.ask("GET", fresh())).status == 200


# --- which comes first -----------------------------------------------------------------------------------------------


async def test_the_first_thing_that_is_wrong_is_told(state_url: str) -> None:
    async with limited(state_url, per_minute=2, at_block_per_minute=2) as world:
        bad = {name: f"/v1/{name}?nonsense=1" for name in ("wallet", "portfolio/at-block", "virtual-users")}
        for name, status in (("wallet", 403), ("portfolio/at-block", 401), ("virtual-users", 403)):
            ungranted = world.tenant("nothing", "FREE", grants=(), credits=0)
            unknown = Tenant(ungranted.session, ungranted.base, "", ungranted.key[:-1])
            assert (await unknown.ask("GET", bad[name])).status == 401
            assert statuses([await ungranted.ask("GET", bad[name]) for _ in range(3)]) == [status, status, 429]
        poor = world.tenant("poor", grants=GRANTS, credits=0)
        assert statuses([await poor.ask("GET", each) for each in (bad["wallet"], WALLET, WALLET)]) == [400, 402, 429]
        assert sum(world.request_counts().values()) == 8, (
            "a refusal for the rate is not counted, one without a key neither"
        )
