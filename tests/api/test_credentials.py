"""Credentials, in addition to `test_matrix.py`: refusals without a key, and public routes."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from chainfolio.api.router import Route
from tests.api.fakes import ALICE, KEY, FakeKeys
from tests.api.targets import KEYED, target


@pytest.mark.parametrize("route", KEYED, ids=lambda route: route.path)
async def test_a_missing_key_is_told_before_anything_else_is_wrong(client: ClientSession, route: Route) -> None:
    wrong = {"addresses": "nonsense", "key": KEY, "api_key": KEY}
    answer = await client.request(route.method, target(route).partition("?")[0], params=wrong, data=b"{")
    assert answer.status == 401


async def test_a_key_in_the_query_is_an_unknown_parameter(ask: Any) -> None:
    answer = await ask(f"/v1/wallet?addresses={ALICE}&key={KEY}")
    assert answer.status == 400
    assert KEY not in await answer.text()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/docs"])
async def test_public_routes_ask_nobody_who_they_are(client: ClientSession, keys: FakeKeys, path: str) -> None:
    assert (await client.get(path, headers={"Authorization": "Bearer nonsense"})).status == 200
    assert (await client.get(path)).status == 200
    assert keys.lookups == []


async def test_a_revoked_key_is_refused_at_once(ask: Any, keys: FakeKeys) -> None:
    assert (await ask("/v1/chains")).status == 200
    keys.keys.clear()
    assert (await ask("/v1/chains")).status == 401


async def test_the_refusal_of_an_unknown_key_does_not_tell_it_from_a_revoked_one(ask: Any, keys: FakeKeys) -> None:
    keys.keys.clear()
    refusals = [
        await (await ask("/v1/chains", headers={"Authorization": f"Bearer {key}"})).text() for key in (KEY, "x")
    ]
    assert refusals[0] == refusals[1]
