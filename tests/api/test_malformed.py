"""Malformed requests, byte for byte: each is refused or changes nothing.

Requests do not run into each other, and the next client is answered.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from chainfolio.api.routes import ROUTES
from tests.api.furnished import GRANTS, furnish
from tests.api.targets import path_of
from tests.api.tenants import Tenant, World, a_world
from tests.api.wire import WireResponse, exchange, parse_responses, raw

in_one_loop = pytest.mark.asyncio(loop_scope="module")
BOOK: Final = "/v1/addressbook"
GOOD: Final = b'{"entries":[{"address":"0x' + b"11" * 20 + b'"}]}'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder: Path = tmp_path_factory.mktemp("malformed")
    async with a_world(folder) as world:
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def ann(world: World) -> AsyncIterator[Tenant]:
    """Yield a tenant; afterwards the server still answers, and no credits are held."""
    tenant = world.tenant("ann", grants=GRANTS)
    furnish(world, tenant.account)
    yield tenant
    assert (await tenant.ask("GET", "/v1/credits")).status == 200
    await world.settled_balance(tenant)


def port_of(world: World) -> int:
    return int(world.base.rpartition(":")[2])


async def send_lines(world: World, tenant: Tenant, head: str, body: bytes = b"") -> list[WireResponse]:
    """Send a request with the lines of `head` (host and key are added) and return the answers."""
    first, *header_lines = head.split("\n")
    lines = [first, "Host: h", f"Authorization: Bearer {tenant.key}", *header_lines, "", ""]
    return parse_responses(await exchange(port_of(world), "\r\n".join(lines).encode("latin-1") + body))


CHUNKED = "POST /v1/addressbook HTTP/1.1\nContent-Type: application/json\nConnection: close\nTransfer-Encoding: chunked"
PLAIN = "POST /v1/addressbook HTTP/1.1\nContent-Type: application/json\nConnection: close"
SMUGGLED = b"GET /v1/credits HTTP/1.1\r\nHost: h\r\n\r\n"
REFUSED = {
    "a length and chunks": (f"{CHUNKED}\nContent-Length: 4", b"0\r\n\r\n" + SMUGGLED),
    "two lengths": (f"{PLAIN}\nContent-Length: 4\nContent-Length: 5", b"null!"),
    "a list of lengths": (f"{PLAIN}\nContent-Length: 4, 4", b"null"),
    "a length with a sign": (f"{PLAIN}\nContent-Length: +4", b"null"),
    "a length below zero": (f"{PLAIN}\nContent-Length: -1", b""),
    "a length in hex": (f"{PLAIN}\nContent-Length: 0x4", b"null"),
    "chunks that are not last": (f"{PLAIN}\nTransfer-Encoding: chunked, identity", b"0\r\n\r\n"),
    "chunks twice": (f"{PLAIN}\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
    "a chunk of no size": (CHUNKED, b"x\r\n\r\n"),
    "a chunk of a size with a sign": (CHUNKED, b"+4\r\nnull\r\n0\r\n\r\n"),
    "a chunk of a huge size": (CHUNKED, b"f" * 40 + b"\r\n"),
    "a chunk that is longer than it says": (CHUNKED, b"2\r\nnull\r\n0\r\n\r\n"),
    "a folded line": ("GET /v1/credits HTTP/1.1\nX-A: b\n folded\nConnection: close", b""),
    "a name with a colon missing": ("GET /v1/credits HTTP/1.1\nX-A\nConnection: close", b""),
    "a name of nothing": ("GET /v1/credits HTTP/1.1\n: x\nConnection: close", b""),
    "another protocol": ("GET /v1/credits HTTQ/1.1", b""),
    "a version of three numbers": ("GET /v1/credits HTTP/1.1.1", b""),
    "no target": ("GET HTTP/1.1", b""),
    "the start of HTTP/2": ("PRI * HTTP/2.0", b"SM\r\n\r\n"),
}


@in_one_loop
@pytest.mark.parametrize("kind", REFUSED)
async def test_what_two_servers_could_read_differently_is_refused_and_the_connection_ends(
    world: World, ann: Tenant, kind: str
) -> None:
    (answer,) = await send_lines(world, ann, *REFUSED[kind])
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json"), answer.body
    assert set(json.loads(answer.body)) >= {"error", "message"}
    assert ann.key.encode() not in answer.body
    assert (await world.settled_balance(ann)).earned == 0


@in_one_loop
@pytest.mark.parametrize("line", ["X-A: b\rX-C: d", "X-A: b\nX-C: d", "X-A: \0", "X\tA: b", "X-\x7f: b"])
async def test_a_bare_line_break_adds_no_header(world: World, ann: Tenant, line: str) -> None:
    lines = f"GET /v1/credits HTTP/1.1\r\nHost: h\r\n{line}\r\nAuthorization: Bearer {ann.key}\r\nConnection: close\r\n"
    (answer,) = parse_responses(await exchange(port_of(world), lines.encode() + b"\r\n"))
    assert answer.status in ((200, 400) if line == "X-A: b\nX-C: d" else (400,))
    assert b"X-C" not in answer.body


@in_one_loop
async def test_chunks_are_put_together_and_their_extensions_left_out(world: World, ann: Tenant) -> None:
    pieces = b"".join(b"%x;name=value\r\n%b\r\n" % (len(part), part) for part in (GOOD[:7], GOOD[7:]))
    (answer,) = await send_lines(world, ann, CHUNKED, pieces + b"0\r\n\r\n")
    assert answer.status == 200, answer.body


@in_one_loop
async def test_requests_on_one_connection_are_answered_in_their_order(world: World, ann: Tenant) -> None:
    key = f"Host: h\r\nAuthorization: Bearer {ann.key}\r\n"
    paths = ["/v1/credits", "/v1/nowhere", "/v1/chains", "/v1/wallet"]
    pipelined = "".join(f"GET {path} HTTP/1.1\r\n{key}\r\n" for path in paths)
    last = f"GET /v1/credits HTTP/1.1\r\n{key}Connection: close\r\n\r\n"
    answers = parse_responses(await exchange(port_of(world), (pipelined + last).encode()))
    assert [answer.status for answer in answers] == [200, 404, 200, 400, 200]


@in_one_loop
async def test_who_closes_too_early_is_let_go(world: World, ann: Tenant) -> None:
    for part in (b"", b"GET", b"GET /v1/credits HTTP/1.1\r\nHost:"):
        await closed_after(world, part)
    head = f"{PLAIN}\nAuthorization: Bearer {ann.key}\nContent-Length: 100".replace("\n", "\r\n")
    await closed_after(world, head.encode() + b"\r\n\r\n{")
    assert (await world.settled_balance(ann)).earned == 0


async def closed_after(world: World, data: bytes) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(world))
    writer.write(data)
    await asyncio.sleep(0.02)
    writer.close()


@in_one_loop
async def test_another_expectation_than_to_go_on_is_not_met(world: World, ann: Tenant) -> None:
    (answer,) = await send_lines(world, ann, f"{PLAIN}\nContent-Length: {len(GOOD)}\nExpect: a-miracle", GOOD)
    assert answer.status == 417
    assert set(json.loads(answer.body)) == {"error", "message"}


@in_one_loop
async def test_one_header_of_eight_kilobytes_is_read_and_a_thousand_are_refused(world: World, ann: Tenant) -> None:
    (answer,) = await send_lines(world, ann, f"GET /v1/credits HTTP/1.1\nConnection: close\nX-A: {'a' * 8192}")
    assert answer.status == 200
    header_lines = "\n".join(f"X-{number}: {'a' * 20}" for number in range(1000))
    (answer,) = await send_lines(world, ann, f"GET /v1/credits HTTP/1.1\nConnection: close\n{header_lines}")
    assert answer.status in (400, 431)
    assert set(json.loads(answer.body)) == {"error", "message"}


PATHS = sorted({path_of(route) for route in ROUTES})


@in_one_loop
@pytest.mark.parametrize("path", PATHS)
async def test_no_path_is_reached_by_another_spelling_or_method(world: World, ann: Tenant, path: str) -> None:
    port, key, calls_before = port_of(world), [f"Authorization: Bearer {ann.key}"], len(world.engine.calls)
    first, _, subpath = path[1:].partition("/")
    spellings = [f"{path}/", f"/{path}", f"/%2e%2e{path}", f"{path}/.", f"{path};a=b", f"{path}%20", f"{path}%00"]
    spellings += [f"/{first.upper()}/{subpath}"] if subpath else []
    for spelling in spellings:
        answer = await raw(port, spelling, key)
        assert 400 <= answer.status < 500, (spelling, answer.body)
    for method in ("CONNECT", "TRACE", "PROPFIND", "get", "BREW", "M" * 40):
        answer = await raw(port, path, key, method)
        assert answer.status in (400, 404, 405), (method, answer.status)
    assert len(world.engine.calls) == calls_before
    assert (await world.settled_balance(ann)).earned == 0


BODIES = {
    "empty": (b"", 400),
    "null": (b"null", 400),
    "UTF-16": (GOOD.decode().encode("utf-16"), 400),
    "a byte order mark": (b"\xef\xbb\xbf" + GOOD, 400),
    "a field twice": (GOOD[:-1] + b',"entries":[]}', 400),
    "an unknown field": (GOOD[:-1] + b',"plan":"PRO"}', 400),
    "what is not the client's": (GOOD[:-3] + b'","isPaid":true,"expiresAt":"2099-01-01T00:00:00Z"}]}', 400),
    "a lone surrogate": (b'{"entries":[{"address":"\\ud800"}]}', 400),
    "a NUL": (b'{"entries":[{"address":"\\u0000"}]}', 400),
    "not UTF-8": (b'{"entries":[{"address":"\xff"}]}', 400),
    "deep": (b'{"entries":' + b"[" * 100_000, 400),
    "a long number": (b'{"entries":' + b"9" * 100_000 + b"}", 400),
    "two documents": (GOOD + GOOD, 400),
    "not a number": (b'{"entries":NaN}', 400),
    "10 MB": (b'{"entries":"' + b"a" * 10_000_000 + b'"}', 413),
}


@in_one_loop
@pytest.mark.parametrize("kind", BODIES)
async def test_a_body_that_cannot_be_meant_changes_nothing(world: World, ann: Tenant, kind: str) -> None:
    body, status = BODIES[kind]
    before = await ann.read_all()
    response = await ann.ask("POST", BOOK, body)
    assert (response.status, response.headers["Content-Type"]) == (status, "application/json"), response.body
    assert len(response.body) < 2000
    assert await ann.read_all() == before


@in_one_loop
@pytest.mark.parametrize("header", ["Content-Encoding: gzip", "Content-Encoding: deflate", "Content-Encoding: br"])
async def test_a_body_that_is_no_compressed_one_is_refused(world: World, ann: Tenant, header: str) -> None:
    (answer,) = await send_lines(world, ann, f"{PLAIN}\n{header}\nContent-Length: {len(GOOD)}", GOOD)
    assert answer.status in (400, 415)


@in_one_loop
async def test_a_compressed_body_is_measured_as_what_it_is(world: World, ann: Tenant) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    (answer,) = await send_lines(world, ann, f"{PLAIN}\nContent-Encoding: gzip\nContent-Length: {len(bomb)}", bomb)
    assert answer.status in (400, 413, 415)
