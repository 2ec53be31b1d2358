"""Who may ask: every kind of credential against every route that needs a key, and against those that need none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import ClientSession

from api.router import Route
from tests.api import targets
from tests.api.fakes import ALICE, KEY, OTHER_ENVIRONMENT, FakeEngine, FakeKeys
from tests.api.targets import KEYED, target

FLIPPED = KEY[:-1] + ("A" if KEY[-1] != "A" else "B")

# What each kind sends as lines of the head, and whether it is let in.
KINDS: dict[str, tuple[list[str], bool]] = {
    "none": ([], False),
    "empty header": (["Authorization:"], False),
    "only the scheme": (["Authorization: Bearer"], False),
    "only the scheme and a space": (["Authorization: Bearer "], False),
    "valid": ([f"Authorization: Bearer {KEY}"], True),
    "lower-case scheme": ([f"Authorization: bearer {KEY}"], True),
    "upper-case scheme": ([f"authorization: BEARER {KEY}"], True),
    "several spaces": ([f"Authorization:   Bearer   {KEY}   "], True),
    "tab between": ([f"Authorization: Bearer\t{KEY}"], False),
    "tab around": ([f"Authorization:\tBearer {KEY}\t"], True),
    "no scheme": ([f"Authorization: {KEY}"], False),
    "Basic": ([f"Authorization: Basic {KEY}"], False),
    "Token": ([f"Authorization: Token {KEY}"], False),
    "scheme run together": ([f"Authorization: Bearer{KEY}"], False),
    "in a cookie": ([f"Cookie: key={KEY}; Authorization=Bearer {KEY}"], False),
    "in X-API-Key": ([f"X-API-Key: {KEY}"], False),
    "in Proxy-Authorization": ([f"Proxy-Authorization: Bearer {KEY}"], False),
    "good, then bad header": ([f"Authorization: Bearer {KEY}", f"Authorization: Bearer {FLIPPED}"], False),
    "bad, then good header": ([f"Authorization: Bearer {FLIPPED}", f"Authorization: Bearer {KEY}"], False),
    "good header twice": ([f"Authorization: Bearer {KEY}"] * 2, False),
    "joined by comma": ([f"Authorization: Bearer {KEY}, Bearer {KEY}"], False),
    "two tokens": ([f"Authorization: Bearer {KEY} {KEY}"], False),
    "quoted": ([f'Authorization: Bearer "{KEY}"'], False),
    "bad checksum": ([f"Authorization: Bearer {FLIPPED}"], False),
    "truncated": ([f"Authorization: Bearer {KEY[:-1]}"], False),
    "one more character": ([f"Authorization: Bearer {KEY}A"], False),
    "other case": ([f"Authorization: Bearer {KEY.swapcase()}"], False),
    "other environment": ([f"Authorization: Bearer {OTHER_ENVIRONMENT}"], False),
    "Unicode look-alike": ([f"Authorization: Bearer {KEY.replace('A', 'А')}"], False),
    "percent-encoded": ([f"Authorization: Bearer {KEY.replace('_', '%5F')}"], False),
    "8 KiB": ([f"Authorization: Bearer {'A' * 8192}"], False),
}
# What no HTTP parser lets pass at all.
BROKEN = {
    "NUL inside": f"Authorization: Bearer {KEY[:9]}\0{KEY[9:]}",
    "CR inside": f"Authorization: Bearer {KEY[:9]}\r{KEY[9:]}",
    "header name with a space": f"Authorization : Bearer {KEY}",
}


async def raw(
    port: int, path: str, lines: list[str], method: str = "GET", content: str = ""
) -> tuple[int, dict[str, str], str]:
    """One request byte for byte, and the answer's status, headers and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    kind = ["Content-Type: application/json", f"Content-Length: {len(content)}"] if content else []
    head = [f"{method} {path} HTTP/1.1", "Host: here", "Connection: close", *kind, *lines, "", ""]
    writer.write(("\r\n".join(head) + content).encode())
    answer = (await asyncio.wait_for(reader.read(), 5)).decode()
    writer.close()
    top, _, body = answer.partition("\r\n\r\n")
    status, *fields = top.split("\r\n")
    return int(status.split()[1]), dict(field.split(": ", 1) for field in fields), body


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("route", KEYED, ids=lambda route: route.path)
async def test_a_route_lets_in_who_has_exactly_one_good_key(
    port: int, engine: FakeEngine, route: Route, kind: str
) -> None:
    lines, let_in = KINDS[kind]
    status, headers, body = await raw(port, target(route), lines, route.method, targets.body(route))
    assert (status == 401) is not let_in
    assert status == 200 or not let_in or route.path.startswith(targets.KEPT)
    if not let_in:
        assert headers["WWW-Authenticate"] == "Bearer"
        assert body.startswith(('{"error":"Unauthorized","message":"', '{"message":"'))
        assert engine.calls == []
    assert KEY not in body
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("kind", BROKEN)
async def test_a_request_that_is_not_http_is_400(port: int, keys: FakeKeys, kind: str) -> None:
    status, _, body = await raw(port, "/v1/chains", [BROKEN[kind]])
    assert status == 400
    assert keys.asked == []
    assert "Traceback" not in body


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
    assert keys.asked == []


async def test_a_revoked_key_is_refused_at_once(ask: Any, keys: FakeKeys) -> None:
    assert (await ask("/v1/chains")).status == 200
    keys.keys.clear()
    assert (await ask("/v1/chains")).status == 401


async def test_the_refusal_of_an_unknown_key_does_not_tell_it_from_a_revoked_one(ask: Any, keys: FakeKeys) -> None:
    keys.keys.clear()
    told = [await (await ask("/v1/chains", headers={"Authorization": f"Bearer {key}"})).text() for key in (KEY, "x")]
    assert told[0] == told[1]
