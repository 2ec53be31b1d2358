"""The only HTTP of the adapter, against a server on this machine that behaves badly."""

from __future__ import annotations

import asyncio
import errno
import gzip
import socket
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from chainfolio.adapters.evm.endpoint import EvmEndpoint
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, ResponseTooLarge, Unavailable
from chainfolio.memory import ByteBudget
from chainfolio.transport.exchange import MAX_BODY, Body, unreachable
from chainfolio.transport.http import HttpTransport
from chainfolio.transport.wire import Request, decode, encode
from tests.evm.fakes import FakeClock
from tests.speaking import speaking

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server with one handler and give its address."""
    runners: list[web.AppRunner] = []

    async def start(handler: Handler) -> str:
        app = web.Application()
        app.router.add_post("/{path:.*}", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/"

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    client = HttpTransport(max_body=100_000)
    yield client
    await client.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_what_was_posted_comes_back(serve: Serve, transport: HttpTransport) -> None:
    async def echo(request: web.Request) -> web.Response:
        assert request.content_type == "application/json"
        return web.Response(body=await request.read(), headers={"retry-after": "7"})

    posted = await transport.post("node", await serve(echo), b'{"a":1}', 5)
    assert (posted.status, posted.retry_after_s, posted.body) == (200, 7.0, b'{"a":1}')


async def test_an_address_with_a_port_that_is_none_cannot_be_reached(transport: HttpTransport) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        await transport.post("node", "http://127.0.0.1:99999/secret", b"{}", 5)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        ("99999", 300.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("-1", None),
        ("1e9", None),
    ],
)
async def test_retry_after_counts_in_bounded_seconds(
    serve: Serve, transport: HttpTransport, header: str, seconds: float | None
) -> None:
    async def busy(request: web.Request) -> web.Response:
        return web.Response(status=429, headers={"retry-after": header})

    posted = await transport.post("node", await serve(busy), b"{}", 5)
    assert (posted.status, posted.retry_after_s) == (429, seconds)


async def test_a_refused_connection_says_what_to_look_at(transport: HttpTransport) -> None:
    with pytest.raises(Unavailable, match="cannot be reached: connection refused") as caught:
        await transport.post("node", f"http://127.0.0.1:{free_port()}/secret", b"{}", 5)
    assert "is the node running" in caught.value.remedy
    assert "secret" not in str(caught.value)


async def test_a_name_that_nobody_has_cannot_be_reached(transport: HttpTransport) -> None:
    with pytest.raises(Unavailable):
        await transport.post("node", "http://nobody.invalid/secret", b"{}", 5)


async def test_no_redirect_is_followed(serve: Serve, transport: HttpTransport) -> None:
    followed = []

    async def elsewhere(request: web.Request) -> web.Response:
        followed.append(request.path)
        return web.Response(status=307, headers={"location": "/other"})

    assert (await transport.post("node", await serve(elsewhere), b"{}", 5)).status == 307
    assert followed == ["/"]


async def test_a_silent_server_is_given_up_after_its_time(serve: Serve, transport: HttpTransport) -> None:
    released = asyncio.Event()

    async def silent(request: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    address = await serve(silent)
    with pytest.raises(Unavailable, match=r"no answer within 0.05 s"):
        await transport.post("node", address, b"{}", 0.05)
    released.set()


async def test_a_body_larger_than_its_cap_is_left_unread(serve: Serve, transport: HttpTransport) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(1000):
            await answer.write(b" " * 10_000)
        return answer

    with pytest.raises(ResponseTooLarge) as caught:
        await transport.post("node", await serve(endless), b"{}", 5)
    assert caught.value.dense


async def test_a_small_body_that_unpacks_into_a_large_one_is_left_unread(
    serve: Serve, transport: HttpTransport
) -> None:
    async def bomb(request: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(b" " * 50_000_000), headers={"content-encoding": "gzip"})

    with pytest.raises(ResponseTooLarge):
        await transport.post("node", await serve(bomb), b"{}", 5)


async def test_a_body_shorter_than_announced_is_a_broken_connection(transport: HttpTransport) -> None:
    async def short(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"jsonrpc"')

    async with speaking(short) as url:
        with pytest.raises(Unavailable, match="connection broke"):
            await transport.post("node", url, b"{}", 5)


async def test_what_is_no_http_at_all_is_a_broken_connection(transport: HttpTransport) -> None:
    async def speak_smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"220 mail.test ESMTP\r\n")

    async with speaking(speak_smtp) as url:
        with pytest.raises(Unavailable):
            await transport.post("node", url, b"{}", 5)


async def test_a_connection_is_used_again_until_the_other_side_closes_it(transport: HttpTransport) -> None:
    opened = []

    async def two_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        for _ in range(2):
            await reader.readuntil(b"{}")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]")

    async with speaking(two_answers, ends_s=5) as url:
        for _ in range(2):
            assert (await transport.post("node", url, b"{}", 5)).body == b"[]"
        await opened[0].wait_closed()
        assert (await transport.post("node", url, b"{}", 5)).body == b"[]"
        assert len(opened) == 2
        await transport.close()


async def test_who_is_called_off_hangs_up(transport: HttpTransport) -> None:
    received, hung_up = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        received.set()
        assert await reader.read() == b""
        hung_up.set()

    async with speaking(silent) as url:
        plan = asyncio.create_task(transport.post("node", url, b"{}", 60))
        await received.wait()
        plan.cancel()
        with pytest.raises(asyncio.CancelledError):
            await plan
        await asyncio.wait_for(hung_up.wait(), 5)


async def test_a_name_and_password_in_the_address_are_sent_as_such(serve: Serve, transport: HttpTransport) -> None:
    async def echo_headers(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.headers['authorization']} {request.raw_path}")

    address = (await serve(echo_headers)).replace("//", "//ann:p%40ss@") + "v3/a%20b?key=1%2F2"
    posted = await transport.post("node", address, b"{}", 5)
    assert posted.body == b"Basic YW5uOnBAc3M= /v3/a%20b?key=1%2F2"


async def test_headers_of_its_own_are_sent_along_with_everything(serve: Serve) -> None:
    async def echo_headers(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.headers['x-key']} {request.headers['content-type']}")

    transport, address = HttpTransport(headers={"x-key": "1234"}), await serve(echo_headers)
    posted = await transport.post("node", address, b"{}", 5)
    await transport.close()
    assert posted.body == b"1234 application/json"


async def test_an_answer_in_pieces_and_a_packed_one_are_put_together(serve: Serve, transport: HttpTransport) -> None:
    async def pieces(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        for _ in range(3):
            await answer.write(b"x" * 20_000)
        return answer

    async def packed(request: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(b"y" * 90_000), headers={"content-encoding": "gzip"})

    assert (await transport.post("node", await serve(pieces), b"{}", 5)).body == b"x" * 60_000
    assert (await transport.post("node", await serve(packed), b"{}", 5)).body == b"y" * 90_000


async def test_with_tls_the_other_side_must_prove_who_it_is(serve: Serve, transport: HttpTransport) -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    with pytest.raises(Unavailable, match="cannot be reached: it does not speak TLS as expected"):
        await transport.post("node", (await serve(echo)).replace("http://", "https://"), b"{}", 5)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "secret"), "connection refused"),
        (OSError(errno.ENETUNREACH, "secret"), "network is unreachable"),
        (socket.gaierror(socket.EAI_NONAME, "secret"), "no host of that name is found"),
        (ssl.SSLError(1, "secret"), "it does not speak TLS as expected"),
        (ValueError("secret"), "the address is none"),
    ],
)
def test_the_cause_is_told_and_nothing_of_the_address(error: Exception, expected: str) -> None:
    assert unreachable("node", error).reason == f"cannot be reached: {expected}"


# --- bounds ----------------------------------------------------------------------------------------------------------


async def test_an_answer_is_bounded_by_what_was_asked(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainfolio.transport.exchange.MAX_SMALL_BODY", 1000)
    transport = HttpTransport(max_body=10_000)

    async def large(request: web.Request) -> web.Response:
        return web.Response(body=b"0" * 5000)

    async def packed(request: web.Request) -> web.Response:
        body = gzip.compress(b"0" * 5_000_000)
        assert len(body) < 6000
        return web.Response(body=body, headers={"content-encoding": "gzip"})

    url, bomb = await serve(large), await serve(packed)
    logs, call = (encode([Request(method)]) for method in ("eth_getLogs", "eth_call"))
    assert len((await transport.post("node", url, logs, 5)).body) == 5000
    for address, question in ((url, call), (bomb, call), (bomb, logs)):
        with pytest.raises(ResponseTooLarge, match="an answer of more than"):
            await transport.post("node", address, question, 5)
    await transport.close()


LARGE = 4 * 1024 * 1024
HOSTILE = {
    "a long refusal": b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"' + b"x" * LARGE + b'"}}',
    "nested without end": b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * LARGE + b"]" * LARGE + b"}",
    "answers that nobody asked for": b"[" + b",".join([b"{}"] * (LARGE // 3)) + b"]",
    "lists beside a refusal": b'{"id":1,"error":{"message":"a","data":[' + b"[]," * (LARGE // 3) + b"0]}}",
    "objects beside a refusal": b'{"id":1,"error":{"data":{"data":[' + b"{}," * (LARGE // 3) + b"0]}}}",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_an_answer_costs_in_memory_is_bounded_by_its_bytes(body: bytes) -> None:
    tracemalloc.start()
    try:
        with suppress(BadAnswer):
            decode("node", body, 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * len(body) + 1_000_000, f"{peak / len(body):.1f} times the bytes"


# --- all answers together --------------------------------------------------------------------------------------------

BUDGET = 200_000
LOGS = encode([Request("eth_getLogs")])


@pytest.fixture
async def narrow() -> AsyncIterator[HttpTransport]:
    """Yield a transport whose process may hold two large answers at once; others wait."""
    client = HttpTransport(ByteBudget(common=BUDGET, alone=BUDGET, free=1000), max_body=BUDGET)
    yield client
    await client.close()


async def somebody_waits(transport: HttpTransport) -> None:
    while not transport.budget.waiting:  # noqa: ASYNC110 (threads wait too, and set no event of the loop)
        await asyncio.sleep(0)


def body_of(kind: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        content = b"[" + b" " * (BUDGET - 2) + b"]"
        if kind == "announced":
            return web.Response(body=content)
        if kind == "packed":
            return web.Response(body=gzip.compress(content), headers={"content-encoding": "gzip"})
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(content)
        return response

    return answer


@pytest.mark.parametrize("announced", [3_000_000, 2_999_999, 100, None])
async def test_a_body_has_the_room_that_it_announced_and_more_if_more_comes(announced: int | None) -> None:
    content = bytes(range(256)) * 12_000
    body = Body("node", MAX_BODY, ByteBudget().lease(), None)
    body.announce_size(announced)
    tracemalloc.start()
    for start in range(0, 3_000_000, 250_000):
        await body.take(memoryview(content)[start : start + 250_000])
    room = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert body.content() == content[:3_000_000]
    assert room < 5_000_000 if announced == 3_000_000 else room > MAX_BODY


@pytest.mark.parametrize("kind", ["announced", "in chunks", "packed"])
async def test_large_answers_at_once_hold_no_more_than_the_budget_together(
    serve: Serve, narrow: HttpTransport, kind: str
) -> None:
    url = await serve(body_of(kind))

    async def read() -> int:
        posted = await narrow.post("node", url, LOGS, 60)
        posted.give_back()
        return len(posted.body)

    assert await asyncio.gather(*(read() for _ in range(8))) == [BUDGET] * 8
    assert BUDGET // 2 < narrow.budget.peak <= 2 * BUDGET
    assert (narrow.budget.held, narrow.budget.held_alone, narrow.budget.waiting) == (0, 0, 0)


@pytest.mark.parametrize("count", [2, 3, 5])
async def test_answers_that_each_arrived_in_part_do_not_wait_for_each_other(
    serve: Serve, narrow: HttpTransport, count: int
) -> None:
    halves = asyncio.Barrier(count)

    async def in_halves(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": str(BUDGET)})
        await response.prepare(request)
        await response.write(b"0" * (BUDGET // 2))
        await halves.wait()
        await response.write(b"0" * (BUDGET // 2))
        return response

    url = await serve(in_halves)

    async def read() -> int:
        posted = await narrow.post("node", url, LOGS, 60)
        posted.give_back()
        return len(posted.body)

    assert await asyncio.gather(*(read() for _ in range(count))) == [BUDGET] * count


async def test_while_large_answers_are_decoded_another_large_one_waits_and_small_ones_do_not(
    serve: Serve, narrow: HttpTransport
) -> None:
    async def small(request: web.Request) -> web.Response:
        return web.Response(body=b"[]")

    url, small_url = await serve(body_of("announced")), await serve(small)
    responses = [await narrow.post("node", url, LOGS, 60) for _ in range(2)]
    third = asyncio.create_task(narrow.post("node", url, LOGS, 60))
    await somebody_waits(narrow)
    assert (await narrow.post("node", small_url, LOGS, 60)).body == b"[]"
    assert not third.done()
    responses[0].give_back()
    assert len((await third).body) == BUDGET


async def test_who_leaves_or_is_refused_holds_nothing(serve: Serve, narrow: HttpTransport) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"0" * 10_000)
        return response

    url = await serve(body_of("announced"))
    responses = [await narrow.post("node", url, LOGS, 60) for _ in range(2)]
    leaving = asyncio.create_task(narrow.post("node", url, LOGS, 60))
    await somebody_waits(narrow)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert narrow.budget.waiting == 0
    for each in responses:
        each.give_back()
    with pytest.raises(ResponseTooLarge):
        await narrow.post("node", await serve(endless), LOGS, 60)
    assert (narrow.budget.held, narrow.budget.held_alone) == (0, 0)


async def test_what_is_asked_by_its_address_is_counted_too(narrow: HttpTransport) -> None:
    async def packed(request: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(b"y" * BUDGET), headers={"content-encoding": "gzip"})

    async def bomb(request: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(b"y" * 50 * BUDGET), headers={"content-encoding": "gzip"})

    app = web.Application()
    app.add_routes([web.get("/packed", packed), web.get("/bomb", bomb)])
    async with TestServer(app) as server:
        responses = [await narrow.get("node", str(server.make_url("/packed")), 60) for _ in range(2)]
        assert [len(posted.body) for posted in responses] == [BUDGET] * 2
        third = asyncio.create_task(narrow.get("node", str(server.make_url("/packed")), 60))
        await somebody_waits(narrow)
        responses[0].give_back()
        (await third).give_back()
        responses[1].give_back()
        with pytest.raises(ResponseTooLarge):
            await narrow.get("node", str(server.make_url("/bomb")), 60)
    assert (narrow.budget.held, narrow.budget.held_alone, narrow.budget.waiting) == (0, 0, 0)


async def test_an_endpoint_gives_bytes_back_when_they_are_decoded_and_not_before(
    serve: Serve, narrow: HttpTransport
) -> None:
    statuses, held_bytes = [500, 200, 200], list[int]()

    async def logs(request: web.Request) -> web.Response:
        body = b'{"jsonrpc":"2.0","id":1,"result":[' + b" " * (BUDGET - 100) + b"]}"
        return web.Response(status=statuses.pop(0), body=body)

    def parse(source: str, content: memoryview | bytes) -> int:
        held_bytes.append(narrow.budget.held + narrow.budget.held_alone)
        if len(held_bytes) == 1:
            raise Unavailable(source, "this answer is asked for again")
        return len(content)

    endpoint = EvmEndpoint(await serve(logs), narrow, Environment(clock=FakeClock()))
    assert await endpoint.ask_large(Request("eth_getLogs"), parse) == BUDGET - 98
    assert all(BUDGET - 2000 < size < BUDGET for size in held_bytes), (
        "the answers that were refused hold nothing any more"
    )
    assert (len(held_bytes), narrow.budget.held, narrow.budget.held_alone) == (2, 0, 0)
