"""One account that floods the API: its work is bounded, refusals are cheap, others are served."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Collection
from itertools import islice, permutations
from pathlib import Path

import pytest
import pytest_asyncio

from chainfolio.settings import Limits, Settings
from tests.api.fakes import ALICE
from tests.api.tenants import Tenant, World, a_world
from tests.api.wire import exchange, parse_responses

WALLET = f"/v1/wallet?addresses={ALICE}"
LIMITS = Limits(per_minute=5, in_flight_per_account=2)


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path, Settings(limits=LIMITS)) as world:
        yield world


async def running(world: World, tenant: Tenant, requests: int) -> list[asyncio.Task[object]]:
    """Start requests of an account that do not end, and return their tasks."""
    world.engine.delay_s = 3600
    tasks: list[asyncio.Task[object]] = []
    for _ in range(requests):
        world.engine.called.clear()
        tasks.append(asyncio.create_task(tenant.ask("GET", WALLET)))
        await asyncio.wait_for(world.engine.called.wait(), 5)
    world.engine.delay_s = 0
    return tasks


async def test_an_account_runs_so_many_requests_at_once_and_others_are_served(world: World) -> None:
    ann, bob = world.tenant("ann"), world.tenant("bob")
    tasks = await running(world, ann, 2)
    response = await ann.ask("GET", WALLET)
    assert (response.status, response.json["retryAfter"], response.headers["Retry-After"]) == (429, 1, "1")
    assert world.held_credits(ann) == 2, "the one that was refused holds nothing"
    assert (await bob.ask("GET", WALLET)).status == 200
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await world.settled_balance(ann)
    assert (await ann.ask("GET", WALLET)).status == 200


async def test_who_is_refused_for_running_too_many_is_counted_in_the_rate(world: World) -> None:
    ann = world.tenant("ann")
    tasks = await running(world, ann, 2)
    messages = [(await ann.ask("GET", WALLET)).json["message"] for _ in range(4)]
    assert ["are running" in message for message in messages] == [True, True, True, False]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await world.settled_balance(ann)


async def test_who_comes_too_often_is_refused_before_the_body_is_read(world: World) -> None:
    ann = world.tenant("ann")
    for _ in range(LIMITS.per_minute):
        assert (await ann.ask("GET", WALLET)).status == 200
    head = (
        f"POST /v1/bundles HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {ann.key}\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 50\r\n\r\n"
    )
    (answer,) = parse_responses(await exchange(int(world.base.rpartition(":")[2]), head.encode(), 15))
    assert answer.status == 429, "and it was not asked to send its body"
    assert answer.headers["x-ratelimit-remaining"] == "0"


async def test_who_comes_too_often_is_refused_before_names_like_an_unknown_one_are_looked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups: list[str] = []

    def get_close_matches(name: str, *_: object) -> list[str]:
        lookups.append(name)
        return []

    monkeypatch.setattr(difflib, "get_close_matches", get_close_matches)
    ann, unknown = world.tenant("ann"), f"{WALLET}&addressesx=1"
    statuses = [(await ann.ask("GET", unknown)).status for _ in range(LIMITS.per_minute + 3)]
    assert statuses == [400] * LIMITS.per_minute + [429] * 3
    assert len(lookups) == LIMITS.per_minute


async def test_names_that_are_like_no_parameter_cost_no_more_than_a_few(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups: list[str] = []

    def get_close_matches(name: str, like: Collection[str], *_: object) -> list[str]:
        lookups.extend(name for _ in like)
        return []

    monkeypatch.setattr(difflib, "get_close_matches", get_close_matches)
    ann = world.tenant("ann")
    names = islice(("".join(each) for each in permutations("adersstnil")), 600)
    response = await ann.ask("GET", "/v1/transactions?" + "&".join(names))
    assert (response.status, len(response.json["details"]["query"])) == (400, 20)
    assert len(set(lookups)) == 3
