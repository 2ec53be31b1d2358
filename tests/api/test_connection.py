"""Connections: versions of HTTP, keep-alive, and header injection."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from chainfolio.api.app import App
from chainfolio.api.context import Answer, Context, Parts
from chainfolio.api.router import get
from chainfolio.api.serve import listening
from chainfolio.environment import Environment
from chainfolio.settings import Settings
from tests.api.fakes import ALICE, KEY, FakeEngine, FakeKeys, an_app
from tests.api.wire import exchange, parse_responses

ROOT = Path(__file__).parents[2]
HEALTH = "GET /healthz HTTP/1.{minor}\r\nHost: h\r\n{more}\r\n"


@pytest.mark.parametrize(
    ("minor", "extra_headers", "first", "connection"),
    [
        (0, "", "HTTP/1.0 200 OK", "close"),
        (1, "Connection: close\r\n", "HTTP/1.1 200 OK", "close"),
        (1, "Connection: Upgrade\r\nUpgrade: websocket\r\n", "HTTP/1.1 200 OK", "close"),
    ],
)
async def test_a_connection_ends_where_it_says_so(
    port: int, minor: int, extra_headers: str, first: str, connection: str
) -> None:
    data = await exchange(port, HEALTH.format(minor=minor, more=extra_headers).encode())
    assert data.decode().splitlines()[0] == first
    (answer,) = parse_responses(data)
    assert answer.headers["connection"] == connection
    assert int(answer.headers["content-length"]) == len(answer.body) > 0


async def test_a_client_of_http_1_0_may_ask_for_more(port: int) -> None:
    request = HEALTH.format(minor=0, more="Connection: keep-alive\r\n").encode()
    first, second, last = parse_responses(await exchange(port, request * 2 + HEALTH.format(minor=0, more="").encode()))
    assert [each.headers["connection"] for each in (first, second, last)] == ["keep-alive", "keep-alive", "close"]


async def test_who_is_answered_while_the_server_ends_is_told_that_nothing_follows() -> None:
    engine = FakeEngine(delay_s=0.3)
    request = f"GET /v1/wallet?addresses={ALICE} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    async with listening(an_app(engine), "127.0.0.1", 0, drain_s=5) as port:
        exchange_task = asyncio.create_task(exchange(port, request.encode()))
        await asyncio.wait_for(engine.called.wait(), 5)
    (answer,) = parse_responses(await exchange_task)
    assert (answer.status, answer.headers["connection"]) == (200, "close")


async def test_a_body_that_nobody_reads_does_not_become_a_request(port: int) -> None:
    smuggled = b"GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n"
    head = f"GET /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: {len(smuggled)}\r\n\r\n".encode()
    answers = parse_responses(await exchange(port, head + smuggled + HEALTH.format(minor=0, more="").encode()))
    assert [each.status for each in answers] == [200, 200]
    assert all(b"ready" not in each.body for each in answers)


@get("/healthz", tag="Test", summary="", public=True)
async def evil(request: Context) -> Answer:
    """Try to add another header."""
    return Answer(b"{}", headers={"Location": "/\r\nX-Evil: 1"})


async def test_no_header_holds_a_line_break() -> None:
    parts = Parts(FakeEngine(), FakeKeys(), Settings(), Environment())
    async with listening(App(parts, (evil,)), "127.0.0.1", 0, drain_s=0.1) as port:
        data = await exchange(port, HEALTH.format(minor=1, more="").encode())
    assert data.startswith(b"HTTP/1.1 500")
    assert b"X-Evil" not in data


def test_the_server_stands_on_the_public_interface_of_aiohttp() -> None:
    private_names = {
        name
        for kind in (web.RequestHandler, web.Server, web.BaseRequest, web.StreamResponse, web.Response)
        for name in dir(kind)
        if name.startswith("_") and not name.endswith("__")
    }
    assert "_drain_helper" in private_names
    for path in (ROOT / "api").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "aiohttp":
                assert node.module == "aiohttp", path
            if isinstance(node, ast.Attribute):
                assert node.attr not in private_names, f"{path.name}:{node.lineno} uses {node.attr}"
