"""Connections: how many there may be, and for how long a client may keep the server waiting."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest
from aiohttp import StreamReader

from chainfolio.api import connection
from chainfolio.api.app import App
from chainfolio.api.guard import GuardedConnection, address_of, room
from chainfolio.api.serve import listening
from chainfolio.assets import Account
from chainfolio.environment import SystemClock
from chainfolio.portfolio.facts import Options
from chainfolio.settings import Limits
from tests.api.fakes import ALICE, KEY, FakeEngine, FakeKeys, an_app
from tests.api.wire import exchange, parse_responses

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"
ASKED = f"GET /v1/wallet?addresses={ALICE} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()


class Steps(SystemClock):
    """A clock that the test sets."""

    now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


class Long(FakeEngine):
    """Answers more than a system takes from a server for a client that does not read."""

    async def encoded_portfolios(self, accounts: Sequence[Account], options: Options, *, wait: bool) -> list[bytes]:
        return [b'"' + b"x" * 30_000_000 + b'"' for _ in accounts]


class Running:
    """A server whose guard looks when the test says so."""

    def __init__(self, app: App, clock: Steps, port: int) -> None:
        assert app.parts.traffic.guard is not None, "it listens"
        self.clock, self.port, self.guard = clock, port, app.parts.traffic.guard
        self.writers: list[asyncio.StreamWriter] = []

    def later(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.guard.close_slow()

    async def connect(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        before = len(self.guard) + self.guard.ended.total()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        writer.write(data)
        await wait_until(lambda: len(self.guard) + self.guard.ended.total() > before)
        return reader, writer


@contextlib.asynccontextmanager
async def running(
    engine: FakeEngine | None = None, keys: FakeKeys | None = None, limits: Limits | None = None
) -> AsyncIterator[Running]:
    clock, app = Steps(), an_app(engine, keys, limits=limits)
    app.parts = replace(app.parts, environment=replace(app.parts.environment, clock=clock))
    async with listening(app, "127.0.0.1", 0, drain_s=0.1) as port:
        server = Running(app, clock, port)
        yield server
    for writer in server.writers:
        writer.close()


async def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come to that")


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Read until the connection ends or is reset, and return the bytes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := await asyncio.wait_for(reader.read(65536), 15):
            received += chunk
    return received


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Return True if the server closes a connection without an answer."""
    with contextlib.suppress(ConnectionResetError):
        return await asyncio.wait_for(reader.read(), 5) == b""
    return True


@pytest.mark.parametrize("head", [b"", b"G", HEALTH[:-2], ASKED[:-10]])
async def test_who_does_not_finish_the_head_of_a_request_is_disconnected_after_ten_seconds(head: bytes) -> None:
    async with running() as server:
        reader, _ = await server.connect(head)
        server.later(9)
        assert len(server.guard) == 1
        server.later(1)
        assert await is_closed(reader)
        assert (len(server.guard), server.guard.ended) == (0, {"slow head": 1})


async def test_a_client_that_is_between_two_requests_may_stay_and_then_has_ten_seconds_again() -> None:
    async with running() as server:
        reader, writer = await server.connect(HEALTH)
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        server.later(60)
        writer.write(HEALTH + HEALTH[:9])
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        server.later(9)
        writer.write(HEALTH[9:])
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        writer.write(b"G")
        await asyncio.sleep(0.05)
        server.later(10)
        assert await is_closed(reader)


async def test_a_request_that_takes_long_to_answer_is_no_slow_client() -> None:
    engine = FakeEngine(delay_s=0.3)
    async with running(engine) as server:
        reader, _ = await server.connect(ASKED)
        await asyncio.wait_for(engine.called.wait(), 5)
        for _ in range(5):
            server.later(60)
        assert (await asyncio.wait_for(reader.read(12), 5)) == b"HTTP/1.1 200"


async def test_a_body_that_does_not_come_is_408_and_the_connection_ends() -> None:
    head = f"POST /v1/bundles HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    keys = FakeKeys()
    async with running(keys=keys, limits=Limits(body_s=1)) as server:
        (answer,) = parse_responses(await exchange(server.port, head.encode() + b"Content-Length: 50\r\n\r\n{", 15))
    assert (answer.status, answer.headers["connection"]) == (408, "close")
    assert keys.meter.settled == []


BOMB = zlib.compress(bytes(30_000_000), 9)
TINY = b"1\r\n \r\n" * 100_000
COSTLY = {
    "compressed": (f"Content-Encoding: deflate\r\nContent-Length: {len(BOMB)}\r\n\r\n".encode(), BOMB),
    "in tiny chunks": (b"Transfer-Encoding: chunked\r\n\r\n", TINY),
    "too long": (b"Content-Length: 3000000\r\n\r\n", bytes(3_000_000)),
}


@pytest.mark.parametrize("kind", COSTLY)
@pytest.mark.parametrize("key", ["", KEY])
async def test_what_is_left_of_a_costly_body_is_not_unpacked_after_the_answer(
    kind: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = 0
    feed = StreamReader.feed_data

    def count_bytes(self: StreamReader, data: bytes, size: int = 0) -> bool:
        nonlocal unpacked
        unpacked += len(data)
        return feed(self, data, size)

    monkeypatch.setattr(StreamReader, "feed_data", count_bytes)
    monkeypatch.setattr(connection, "LINGER_S", 0.2)
    head = f"POST /v1/bundles HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
    framing, body = COSTLY[kind]
    async with running() as server:
        reader, _ = await server.connect(head.encode() + framing + body)
        (answer,) = parse_responses(await until_closed(reader))
        assert len(server.guard) == 0
    assert (answer.status, answer.headers["connection"]) == (
        401 if not key else 400 if kind == "in tiny chunks" else 413,
        "close",
    )
    assert unpacked < (50_000 if kind == "in tiny chunks" else 2_000_000), "and others are served meanwhile"


async def test_a_body_in_chunks_of_a_usual_size_is_taken() -> None:
    head = f"POST /v1/sync-transactions HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n"
    body = f'{{"addresses":["{ALICE}"]}}'.encode().rjust(700_000)
    chunks = [body[at : at + 1000] for at in range(0, len(body), 1000)]
    framed = b"".join([b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]) + b"0\r\n\r\n"
    framing = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with running() as server:
        (answer,) = parse_responses(await exchange(server.port, head.encode() + framing + framed, 15))
    assert answer.status == 200


async def test_who_reads_nothing_of_an_answer_for_half_a_minute_is_disconnected_and_pays_nothing() -> None:
    keys = FakeKeys()
    async with running(Long(), keys) as server:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", server.port))
            await loop.sock_sendall(client, ASKED.replace(b"/v1/wallet", b"/v1/portfolio"))
            (stuck,) = await _stuck(server)
            server.later(0)
            server.later(29)
            read = 0
            while stuck.unsent() == stuck.progress[0]:  # it goes on a little
                read += len(await loop.sock_recv(client, 2**20))
            server.later(1)
            await _settles(stuck)
            server.later(0)
            server.later(29)
            assert len(server.guard) == 1
            server.later(1)
            assert (len(server.guard), server.guard.ended) == (0, {"slow reader": 1})
            await wait_until(lambda: keys.meter.settled == [(1, "void")])
            assert read < 30_000_000


async def _stuck(server: Running) -> list[GuardedConnection]:
    await wait_until(lambda: any(each.unsent() for each in server.guard._open))
    for each in server.guard._open:
        await _settles(each)
    return list(server.guard._open)


async def _settles(connection: GuardedConnection) -> None:
    before = -1
    while connection.unsent() != before:
        before = connection.unsent()
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("limits", [Limits(connections_per_address=4), Limits(connections=4)])
async def test_one_too_many_takes_the_place_of_the_one_that_is_silent_for_the_longest(limits: Limits) -> None:
    async with running(limits=limits) as server:
        opened = []
        for _ in range(4):
            server.clock.now_s += 1
            opened.append(await server.connect())
        reader, _ = await server.connect(HEALTH)
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        assert await is_closed(opened[0][0])
        assert (len(server.guard), server.guard.ended) == (4, {"crowded out": 1})
        for _, writer in opened:
            writer.close()
        await wait_until(lambda: len(server.guard) == 1)


async def test_who_is_being_answered_gives_way_to_nobody() -> None:
    engine = FakeEngine(delay_s=60)
    async with running(engine, limits=Limits(connections=1)) as server:
        await server.connect(ASKED)
        await asyncio.wait_for(engine.called.wait(), 5)
        reader, _ = await server.connect(HEALTH)
        assert await is_closed(reader)
        assert (len(server.guard), server.guard.ended) == (1, {"refused": 1})


def test_descriptors_stay_for_nodes_and_stores_however_few_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, expected in ((1024, 768), (300, 150), (10_000, 2000), (resource.RLIM_INFINITY, 2000)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert room(Limits()) == expected


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("192.0.2.7", 1), "192.0.2.7"),
        (("2001:db8:1:2:3::4", 1, 0, 0), "2001:0db8:0001:0002"),
        (("fe80::1%eth0", 1, 0, 2), "fe80:0000:0000:0000"),
        (("::ffff:192.0.2.7", 1, 0, 0), "192.0.2.7"),
        ("", ""),
        (None, ""),
    ],
)
def test_an_ipv6_client_counts_by_its_network(peer: object, address: str) -> None:
    assert address_of(peer) == address
