"""Connections to nodes: server and address, reuse, and errors without a connection.

A server that has begun to answer receives each request at most once.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest
import uvloop

from chainfolio.errors import Unavailable
from chainfolio.transport import http, http_connection, plain_http
from chainfolio.transport.exchange import HttpResponse, Unreachable
from chainfolio.transport.http import HttpTransport
from tests.speaking import Speak, speaking

Serve = Callable[[Speak], Awaitable[str]]
Ask = Callable[[str], Coroutine[Any, Any, HttpResponse]]
GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]"


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    client = HttpTransport(connections=2)
    yield client
    await client.close()


@pytest.fixture
async def serve(transport: HttpTransport) -> AsyncIterator[Serve]:
    """Start a server that speaks as it likes, and give its address."""
    async with AsyncExitStack() as servers:

        async def start(speak: Speak) -> str:
            return await servers.enter_async_context(speaking(speak)) + "/"

        yield start
        await transport.close()
    gc.collect()  # what was left open is complained of here


@pytest.fixture(params=["plain", "aiohttp"])
def ask(request: pytest.FixtureRequest, transport: HttpTransport) -> Ask:
    """Either client."""

    async def by_aiohttp(url: str) -> HttpResponse:
        return await transport._read("node", url, None, 5, transport.budget.lease(), None)

    async def plain(url: str) -> HttpResponse:
        return await transport.get("node", url, 5)

    return plain if request.param == "plain" else by_aiohttp


async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(GOOD)


def ending(requests: list[bytes], *answers: bytes) -> Speak:
    """A server that says one of these to each question of a connection, and hangs up after the last."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)

    return speak


# --- connections that are used again ---------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [None, b'{"id":1}'])
async def test_a_server_that_hangs_up_as_it_is_asked_again_is_asked_once_more(
    serve: Serve, transport: HttpTransport, body: bytes | None
) -> None:
    requests = list[bytes]()
    url = await serve(ending(requests, GOOD, b""))
    for _ in range(3):
        posted = await (transport.get("node", url, 5) if body is None else transport.post("node", url, body, 5))
        assert posted.body == b"[]"
    assert len(requests) == 5, "the second and the third question were heard twice each"


@pytest.mark.parametrize("prefix", [b"H", GOOD[:20], GOOD[:-1]])
async def test_an_answer_that_has_begun_is_not_asked_for_again(
    serve: Serve, transport: HttpTransport, prefix: bytes
) -> None:
    requests = list[bytes]()
    url = await serve(ending(requests, GOOD, prefix))
    await transport.get("node", url, 5)
    with pytest.raises(Unavailable, match="the connection broke"):
        await transport.get("node", url, 5)
    assert len(requests) == 2


async def test_a_new_connection_that_ends_unheard_is_not_asked_for_again(
    serve: Serve, transport: HttpTransport
) -> None:
    requests = list[bytes]()
    with pytest.raises(Unavailable, match="the connection broke"):
        await transport.get("node", await serve(ending(requests, b"")), 5)
    assert len(requests) == 1


async def test_a_connection_that_was_kept_for_long_is_not_used_again(
    serve: Serve, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = list[object]()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(writer)
        await answering(reader, writer)

    url = await serve(speak)
    for kept_s, opened in ((http_connection.MAX_IDLE_S, 1), (http_connection.MAX_IDLE_S, 1), (0.0, 2), (0.0, 3)):
        monkeypatch.setattr(http_connection, "MAX_IDLE_S", kept_s)
        await transport.get("node", url, 5)
        assert len(lines) == opened


async def test_questions_that_are_called_off_leave_no_answer_to_others(serve: Serve, transport: HttpTransport) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            target = (await reader.readuntil(b"\r\n\r\n")).split()[1]
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(target))
            await asyncio.sleep(0)
            writer.write(target)

    url, bodies = await serve(echo), dict[str, bytes]()

    async def request_body(name: str) -> None:
        bodies[name] = (await transport.get("node", url + name, 5)).body

    tasks = [asyncio.create_task(request_body(str(each))) for each in range(100)]
    for at, task in enumerate(tasks):
        if at % 3 == 0:
            for _ in range(at % 11):
                await asyncio.sleep(0)
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert bodies.keys() >= {str(each) for each in range(100) if each % 3}
    assert bodies == {name: f"/{name}".encode() for name in bodies}


# --- servers and their addresses -------------------------------------------------------------------------------------


async def test_a_server_that_hangs_holds_up_no_other(serve: Serve, transport: HttpTransport, ask: Ask) -> None:
    arrivals = asyncio.Semaphore(0)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrivals.release()
        await reader.read()

    hanging, good = await serve(hang), await serve(answering)
    waiting = [asyncio.create_task(ask(hanging)) for _ in range(3)]
    for _ in range(2):
        await arrivals.acquire()
    assert arrivals.locked(), "there are two connections to each"
    assert (await ask(good)).body == b"[]"
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """Yield an address that neither accepts nor refuses connections: its backlog is full."""
    with ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()


@pytest.fixture
def closed() -> tuple[str, int]:
    """Return an address without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address: tuple[str, int] = listener.getsockname()
    return address


def at(address: tuple[str, int] | str, family: int = socket.AF_INET) -> http_connection.AddressInfo:
    """An address as a name is resolved to."""
    if isinstance(address, str):
        name, port = address.removeprefix("http://").rstrip("/").split(":")
        address = (name, int(port))
    return (family, socket.SOCK_STREAM, 0, "", address)  # type: ignore[return-value] # of a family that is none, too


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Coroutine[Any, Any, None]], None]]:
    """Run on either event loop."""
    yield request.param
    gc.collect()


@pytest.mark.parametrize("before", [["silent"], ["closed"], ["foreign"], ["closed", "silent", "foreign"]])
def test_the_first_address_of_a_name_that_answers_is_asked(
    run: Callable[[Coroutine[Any, Any, None]], None],
    silent: tuple[str, int],
    closed: tuple[str, int],
    before: list[str],
) -> None:
    addresses = {"silent": at(silent), "closed": at(closed), "foreign": at(closed, family=9_999)}

    async def connect() -> None:
        async with speaking(answering) as url:
            sock = await http_connection._connect_first([*(addresses[each] for each in before), at(url), at(silent)])
            assert sock.getpeername() == at(url)[-1]
            sock.close()

    run(connect())


async def test_of_several_addresses_that_refuse_the_last_says_why(closed: tuple[str, int]) -> None:
    with pytest.raises(ConnectionRefusedError):
        await http_connection._connect_first([at(closed, family=9_999), at(closed)])
    with pytest.raises(OSError, match="family"):
        await http_connection._connect_first([at(closed, family=9_999)])


async def test_who_is_called_off_while_connecting_leaves_nothing_open(silent: tuple[str, int]) -> None:
    connecting = asyncio.create_task(http_connection._connect_first([at(silent), at(silent)]))
    await asyncio.wait([connecting], timeout=2 * http_connection.NEXT_ADDRESS_S)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    gc.collect()


async def test_where_nobody_takes_a_connection_that_is_said(
    monkeypatch: pytest.MonkeyPatch, silent: tuple[str, int], ask: Ask
) -> None:
    monkeypatch.setattr(plain_http, "CONNECT_S", 0.1)
    monkeypatch.setattr(http, "CONNECT_S", 0.1)
    with pytest.raises(Unreachable, match="cannot be reached: no connection came about in time"):
        await ask(f"http://127.0.0.1:{silent[1]}/")


@pytest.mark.parametrize("host", ["a..b", "a" * 70 + ".b", "nobody.invalid"])
async def test_a_name_that_can_be_none_is_nobody(transport: HttpTransport, host: str) -> None:
    with pytest.raises(Unreachable, match=r"cannot be reached: (the address is none|no host of that name is found)"):
        await transport.get("node", f"http://{host}/", 5)


async def test_a_machine_that_can_open_no_connection_does_not_blame_the_node(serve: Serve, ask: Ask) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    url = await serve(answering)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        with pytest.raises(Unavailable, match="could not be asked: too many open files here") as error:
            await ask(url)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not isinstance(error.value, Unreachable)
    assert (await ask(url)).body == b"[]"


# --- turns -----------------------------------------------------------------------------------------------------------


async def test_who_writes_its_answer_in_chunks_of_a_byte_leaves_others_their_turn(
    serve: Serve, transport: HttpTransport
) -> None:
    chunks = 30_000

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        content = b"1\r\n \r\n" * chunks + b"0\r\n\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + content)
        await writer.drain()

    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    assert len((await transport.get("node", await serve(speak), 60)).body) == chunks
    counting.cancel()
    assert turns > chunks // plain_http._CHUNKS_PER_TURN // 2


@pytest.mark.parametrize("turns", range(8))
async def test_who_is_called_off_twice_leaves_no_connection_open(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sockets = list[socket.socket]()

    class TrackedSocket(socket.socket):
        def __init__(self, *words: Any, **named: Any) -> None:
            super().__init__(*words, **named)
            sockets.append(self)

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with speaking(stay_silent) as url:
        monkeypatch.setattr("chainfolio.transport.http_connection.socket.socket", TrackedSocket)
        connecting = asyncio.ensure_future(http_connection.connect("127.0.0.1", int(url.rpartition(":")[2])))
        for count in (turns, 1):
            for _ in range(count):
                await asyncio.sleep(0)
            connecting.cancel()
        [ended] = await asyncio.gather(connecting, return_exceptions=True)
        monkeypatch.undo()
        if isinstance(ended, http_connection.Connection):
            ended.close()
        for _ in range(10):
            await asyncio.sleep(0)
        assert all(each.fileno() == -1 for each in sockets), "it is closed"
