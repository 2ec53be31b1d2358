"""HTTP against servers with malformed answers: an answer or an error, never another request's answer."""

from __future__ import annotations

import asyncio
import gc
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import uvloop

from chainfolio.errors import BadAnswer, ResponseTooLarge, Unavailable
from chainfolio.transport import plain_http
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.http import HttpTransport
from chainfolio.transport.http_connection import BUFFER_SIZE
from chainfolio.transport.http_head import MAX_HEAD, parse_address, parse_head
from tests.speaking import Speak, speaking

Serve = Callable[[Speak], Awaitable[str]]
Streamed = Callable[[str, "RecordingSink"], Awaitable[HttpResponse]]


@pytest.fixture
async def serve(transport: HttpTransport) -> AsyncIterator[Serve]:
    """Start a server that speaks as it likes, and give its address."""
    async with AsyncExitStack() as servers:

        async def start(speak: Speak) -> str:
            return await servers.enter_async_context(speaking(speak, ends_s=5)) + "/a"

        yield start
        await transport.close()


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    client = HttpTransport(max_body=2 * BUFFER_SIZE)
    yield client
    await client.close()


def saying(*answers: bytes) -> Speak:
    """Serve answers in order, one to each request of a connection, then close the connection."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    return speak


OK = b"HTTP/1.1 200 OK\r\n"
GOOD = {
    "with a length": (OK + b"content-length: 2\r\n\r\n[]", b"[]"),
    "to the end of the connection": (OK + b"\r\n[1,2]", b"[1,2]"),
    "of an old server": (b"HTTP/1.0 200 OK\r\nServer: x\r\n\r\n[]", b"[]"),
    "in chunks": (OK + b"transfer-encoding: chunked\r\n\r\n1\r\n[\r\n1;a=b\r\n]\r\n0\r\n\r\n", b"[]"),
    "with trailers": (OK + b"Transfer-Encoding: Chunked\r\n\r\n2\r\n[]\r\n0\r\nx-sum: 1\r\nb: 2\r\n\r\n", b"[]"),
    "after an interim one": (b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK + b"content-length: 2\r\n\r\n[]", b"[]"),
    "without a reason": (b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\n[]", b"[]"),
    "of nothing": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "of no bytes": (OK + b"content-length: 0\r\n\r\n", b""),
    "of no bytes, packed": (OK + b"content-encoding: gzip\r\ncontent-length: 0\r\n\r\n", b""),
    "of nothing, packed": (b"HTTP/1.1 204 No Content\r\ncontent-encoding: gzip\r\n\r\n", b""),
    "packed in chunks": (
        OK
        + b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
        % (len(gzip.compress(b"[3]")), gzip.compress(b"[3]")),
        b"[3]",
    ),
}


@pytest.mark.parametrize(("content", "body"), GOOD.values(), ids=GOOD.keys())
async def test_an_answer_is_read_as_it_is_written(
    serve: Serve, transport: HttpTransport, content: bytes, body: bytes
) -> None:
    assert (await transport.get("node", await serve(saying(content)), 5)).body == body


@pytest.mark.parametrize("content", [each for each, _ in GOOD.values()], ids=GOOD.keys())
async def test_an_answer_that_arrives_byte_by_byte_is_the_same(
    serve: Serve, transport: HttpTransport, content: bytes
) -> None:
    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for at in range(len(content)):
            writer.write(content[at : at + 1])
            await asyncio.sleep(0)

    assert (await transport.get("node", await serve(slowly), 5)).body in [body for _, body in GOOD.values()]


@pytest.mark.parametrize("name", [name for name in GOOD if name not in ("to the end of the connection",)])
async def test_an_answer_that_ends_at_any_byte_is_a_broken_connection(
    serve: Serve, transport: HttpTransport, name: str
) -> None:
    content = GOOD[name][0]
    end = len(content) if name != "of an old server" else content.index(b"\r\n\r\n") + 4

    async def cut(at: int) -> None:
        with pytest.raises(Unavailable, match="the connection broke"):
            await transport.get("node", await serve(saying(content[:at])), 5)

    await asyncio.gather(*(cut(at) for at in range(end)))


BAD = {
    "a length beside chunks": OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n",
    "two lengths": OK + b"content-length: 2\r\ncontent-length: 5\r\n\r\n[]",
    "a length below zero": OK + b"content-length: -2\r\n\r\n[]",
    "a length of other digits": OK + "content-length: ²\r\n\r\n[]".encode("latin-1"),
    "a length with a sign": OK + b"content-length: +2\r\n\r\n[]",
    "a length without end": OK + b"content-length: " + b"9" * 400 + b"\r\n\r\n[]",
    "a coding that nobody asked for": OK + b"transfer-encoding: gzip, chunked\r\n\r\n",
    "an encoding that nobody asked for": OK + b"content-encoding: br\r\ncontent-length: 2\r\n\r\n[]",
    "a header that goes on": OK + b"x: 1\r\n content-length: 2\r\n\r\n[]",
    "a blank before the colon": OK + b"content-length : 2\r\n\r\n[]",
    "a header without a colon": OK + b"content-length 2\r\n\r\n[]",
    "a line that ends in the middle": OK + b"x: 1\ncontent-length: 2\r\n\r\n[]",
    "a return alone": OK + b"x: 1\rcontent-length: 2\r\n\r\n[]",
    "a zero byte": OK + b"x: \x00\r\ncontent-length: 2\r\n\r\n[]",
    "another protocol": b"HTTP/2 200\r\ncontent-length: 2\r\n\r\n[]",
    "a status that is none": b"HTTP/1.1 2000 OK\r\ncontent-length: 2\r\n\r\n[]",
    "a change of protocol": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n[]",
    "interim answers alone": b"HTTP/1.1 100 Continue\r\n\r\n" * 9 + OK + b"content-length: 2\r\n\r\n[]",
    "a head without end": OK + b"x: " + b"y" * (MAX_HEAD + 100),
    "a chunk of no size": OK + b"transfer-encoding: chunked\r\n\r\n\r\n[]\r\n0\r\n\r\n",
    "a chunk of a size below zero": OK + b"transfer-encoding: chunked\r\n\r\n-2\r\n[]\r\n0\r\n\r\n",
    "a chunk that is longer": OK + b"transfer-encoding: chunked\r\n\r\n1\r\n[]\r\n0\r\n\r\n",
    "a chunk whose size has no end": OK + b"transfer-encoding: chunked\r\n\r\n" + b"0" * (MAX_HEAD + 100),
    "trailers without end": OK + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"x: 1\r\n" * MAX_HEAD + b"\r\n",
    "trailers that are none": OK + b"transfer-encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\nHTTP/1.1 200 OK\r\n\r\n",
    "a length with a blank of another kind": OK + b"content-length: 2\x0b\r\n\r\n[]",
    "a coding with a blank of another kind": OK + b"transfer-encoding: chunked\x0c\r\n\r\n2\r\n[]\r\n0\r\n\r\n",
    "packed twice, one after the other": OK
    + b"content-encoding: gzip\r\n\r\n"
    + gzip.compress(b"[1]")
    + gzip.compress(b","),
    "packed, and more behind it": OK
    + b"content-encoding: gzip\r\n\r\n"
    + gzip.compress(b"[]")
    + b"x" * 3 * BUFFER_SIZE,
    "packed, and broken off": OK + b"content-encoding: gzip\r\ncontent-length: 9\r\n\r\n" + gzip.compress(b"[]")[:9],
    "not packed": OK + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\n[]",
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD.keys())
async def test_what_could_be_read_in_two_ways_is_a_broken_connection(
    serve: Serve, transport: HttpTransport, content: bytes
) -> None:
    with pytest.raises(Unavailable, match="the connection broke"):
        await transport.get("node", await serve(saying(content)), 5)
    assert transport.budget.held == transport.budget.held_alone == 0


@pytest.mark.parametrize(
    "content",
    [
        OK + b"content-length: 999999999999\r\n\r\n[",
        OK + b"transfer-encoding: chunked\r\n\r\nfffffffffff\r\n" + b" " * (3 * BUFFER_SIZE),
        OK + b"\r\n" + b" " * (3 * BUFFER_SIZE),
    ],
    ids=["announced", "in one chunk", "to the end of the connection"],
)
async def test_what_outgrows_its_bound_is_left_unread(serve: Serve, transport: HttpTransport, content: bytes) -> None:
    with pytest.raises(ResponseTooLarge):
        await transport.get("node", await serve(saying(content)), 5)
    assert transport.budget.held == transport.budget.held_alone == 0


async def test_bytes_that_nobody_asked_for_are_no_answer_to_the_next_question(
    serve: Serve, transport: HttpTransport
) -> None:
    first = OK + b"content-length: 2\r\n\r\n[]"
    url = await serve(saying(first + OK + b'content-length: 7\r\n\r\n["lie"]', first))
    for _ in range(3):
        assert (await transport.get("node", url, 5)).body == b"[]"


async def test_bytes_that_come_later_are_none_either_and_the_connection_is_given_up(
    serve: Serve, transport: HttpTransport
) -> None:
    opened = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"content-length: 2\r\n\r\n[]")
        await asyncio.sleep(0.02)
        writer.write(OK + b'content-length: 7\r\n\r\n["lie"]')
        await reader.read()

    url = await serve(speak)
    assert (await transport.get("node", url, 5)).body == b"[]"
    await asyncio.sleep(0.05)
    assert (await transport.get("node", url, 5)).body == b"[]"
    assert len(opened) == 2


@pytest.mark.parametrize("head", [b"connection: close\r\n", b"Connection: keep-alive, Close\r\n"])
async def test_a_connection_that_the_other_side_will_close_is_not_used_again(
    serve: Serve, transport: HttpTransport, head: bytes
) -> None:
    answer = OK + head + b"content-length: 2\r\n\r\n[]"
    url = await serve(saying(answer, OK + b"content-length: 7\r\n\r\n[false]"))
    for _ in range(2):
        assert (await transport.get("node", url, 5)).body == b"[]"


async def test_a_large_answer_is_whole_and_in_order(serve: Serve) -> None:
    body = b"".join(b"%08d" % each for each in range(3 * BUFFER_SIZE // 8))
    pieces = b"".join(
        b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:BUFFER_SIZE], body[BUFFER_SIZE:])
    )
    packed = gzip.compress(body, 1)
    answers = (
        OK + b"content-length: %d\r\n\r\n" % len(body) + body,
        OK + b"transfer-encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n",
        OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed) + packed,
    )
    transport = HttpTransport()
    url = await serve(saying(*answers))
    for _ in answers:
        posted = await transport.get("node", url, 5)
        assert posted.body == body
        posted.give_back()
    await transport.close()


async def test_no_more_is_asked_at_once_than_there_may_be_connections(serve: Serve) -> None:
    open_now, peak = 0, 0

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, peak
        while True:
            await reader.readuntil(b"\r\n\r\n")
            open_now += 1
            peak = max(peak, open_now)
            await asyncio.sleep(0.005)
            open_now -= 1
            writer.write(OK + b"content-length: 2\r\n\r\n[]")

    transport, url = HttpTransport(connections=3), await serve(speak)
    answers = await asyncio.gather(*(transport.get("node", url, 5) for _ in range(12)))
    assert ([each.body for each in answers], peak) == ([b"[]"] * 12, 3)
    await transport.close()


async def test_an_answer_that_comes_after_the_transport_was_closed_keeps_no_connection(serve: Serve) -> None:
    requested, may_answer, hung_up = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        requested.set()
        await may_answer.wait()
        writer.write(OK + b"content-length: 2\r\n\r\n[]")
        assert await reader.read() == b""
        hung_up.set()

    transport = plain_http.PlainTransport(HttpTransport().budget, connections=1, max_body=100)
    answer = asyncio.create_task(transport.exchange("node", await serve(speak), None, 5))
    await requested.wait()
    await transport.close()
    may_answer.set()
    assert (await answer).body == b"[]"
    await asyncio.wait_for(hung_up.wait(), 5)


@pytest.mark.parametrize("headers", [{"x-key": "a\r\nx-other: b"}, {"x\r\ny": "a"}, {"x-key": "a\nb"}, {"": "a"}])
async def test_a_header_that_would_become_two_is_not_sent(serve: Serve, headers: dict[str, str]) -> None:
    transport = HttpTransport(headers=headers)
    with pytest.raises(Unavailable):
        await transport.get("node", await serve(saying(OK + b"content-length: 2\r\n\r\n[]")), 5)


@pytest.mark.parametrize(
    ("path", "request_line"),
    [
        ("", b"GET / HTTP/1.1"),
        ("?a=b c", b"GET /?a=b%20c HTTP/1.1"),
        ("/a b\r\nx: y", b"GET /a%20b%0D%0Ax:%20y HTTP/1.1"),
        ("/ä?ö=%41&b=/?#part", b"GET /%C3%A4?%C3%B6=%41&b=/? HTTP/1.1"),
    ],
)
async def test_an_address_is_asked_for_in_letters_that_stay_one_line(
    serve: Serve, transport: HttpTransport, path: str, request_line: bytes
) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        content = head.partition(b"\r\n")[0]
        writer.write(OK + b"content-length: %d\r\n\r\n" % len(content) + content)

    url = (await serve(speak)).removesuffix("/a")
    assert (await transport.get("node", url + path, 5)).body == request_line


@pytest.mark.parametrize(
    ("base", "host", "port", "name"),
    [
        ("http://node", "node", 80, b"host: node\r\n"),
        ("http://node:8545", "node", 8545, b"host: node:8545\r\n"),
        ("http://[::1]:5052", "::1", 5052, b"host: [::1]:5052\r\n"),
        ("http://knöten", "knöten", 80, b"host: xn--knten-kua\r\n"),
    ],
)
def test_who_is_asked_is_named(base: str, host: str, port: int, name: bytes) -> None:
    address = parse_address(base, {})
    assert (address.host, address.port) == (host, port)
    assert name in address.headers


@pytest.mark.parametrize("base", ["http://[::1", "http://node:x", "http://node:99999"])
def test_who_is_nobody_is_not_asked(base: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (of the standard library)
        parse_address(base, {})


def test_whether_a_connection_is_kept_depends_on_all_that_a_head_says() -> None:
    assert parse_head(b"HTTP/1.1 200 OK\r\nContent-Length: 5").is_kept
    assert parse_head(b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 5").is_kept
    assert not parse_head(b"HTTP/1.0 200 OK\r\nContent-Length: 5").is_kept
    assert not parse_head(b"HTTP/1.1 200 OK").is_kept, "where the body ends with the connection"
    chunks = b"Transfer-Encoding: chunked\r\nConnection: keep-alive"
    assert parse_head(b"HTTP/1.1 200 OK\r\n" + chunks).is_kept
    assert not parse_head(b"HTTP/1.0 200 OK\r\n" + chunks).is_kept, "where somebody between has read no chunks"


def test_it_works_on_the_loop_of_the_server_too() -> None:
    async def run() -> bytes:
        speak = saying(*[OK + b"content-length: %d\r\n\r\n" % (2 * BUFFER_SIZE) + b" " * 2 * BUFFER_SIZE] * 2)
        transport = HttpTransport()
        async with speaking(speak) as url:
            for _ in range(3):
                body = (await transport.get("node", url.replace("127.0.0.1", "localhost"), 5)).body
            await transport.close()
        return body

    assert uvloop.run(run()) == b" " * 2 * BUFFER_SIZE


class Empty(BaseHTTPRequestHandler):
    """Answers everything with an empty list, and keeps the connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The answer."""
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, format: str, *args: object) -> None:
        """Discard the message."""


# The event loop ended before its connection did, which raises a warning.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_connection_of_an_event_loop_that_has_ended_is_not_used_again() -> None:
    transport, server = HttpTransport(), ThreadingHTTPServer(("127.0.0.1", 0), Empty)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever)
    thread.start()

    async def run(is_last: bool) -> bytes:
        body = (await transport.get("node", f"http://127.0.0.1:{server.server_port}", 5)).body
        if is_last:
            await transport.close()
        return body

    try:
        assert [asyncio.run(run(is_last)) for is_last in (False, True)] == [b"[]", b"[]"]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        gc.collect()


class RecordingSink:
    """A sink that keeps what it takes, and refuses a form, or what is too long."""

    form: str = "application/octet-stream"
    reads: frozenset[bytes] = frozenset((b"x-kind", b"x-none"))

    def __init__(self, limit: int = 1 << 30) -> None:
        self.headers: Mapping[bytes, str] | None = None
        self.size: int | None = -1
        self.taken, self._most = b"", limit

    def begin(self, headers: Mapping[bytes, str], size: int | None) -> None:
        """Remember it."""
        if headers.get(b"x-kind") == "bad":
            raise BadAnswer("node", "of no use")
        self.headers, self.size = headers, size

    def take(self, piece: bytes | memoryview) -> None:
        """Keep it."""
        self.taken += piece
        if len(self.taken) > self._most:
            raise BadAnswer("node", "too long")


@pytest.fixture(params=["plain", "aiohttp"])
async def streamed(request: pytest.FixtureRequest, transport: HttpTransport) -> Streamed:
    """Return a function that streams an answer to a sink, by either client."""

    async def by_aiohttp(url: str, sink: RecordingSink) -> HttpResponse:
        return await transport._read("node", url, None, 5, transport.budget.lease(), sink)

    async def plain(url: str, sink: RecordingSink) -> HttpResponse:
        return await transport.stream("node", url, sink, 5)

    return plain if request.param == "plain" else by_aiohttp


LONG = bytes(range(256)) * 8 * (BUFFER_SIZE >> 8)  # more than any answer that is kept
HANDED = {
    "with a length": (b"content-length: %d\r\n\r\n%b" % (len(LONG), LONG), len(LONG)),
    "in chunks": (b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(LONG), LONG), None),
    "to the end of the connection": (b"connection: close\r\n\r\n" + LONG, None),
}


@pytest.mark.parametrize("how", HANDED)
async def test_a_sink_takes_more_than_could_be_held(
    serve: Serve, transport: HttpTransport, streamed: Streamed, how: str
) -> None:
    requests = list[bytes]()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK + b"X-Kind: states\r\nx-other: 1\r\n" + HANDED[how][0])
        await writer.drain()

    sink = RecordingSink()
    posted = await streamed(await serve(speak), sink)
    assert (sink.taken, sink.size, sink.headers) == (LONG, HANDED[how][1], {b"x-kind": "states"})
    assert (posted.status, posted.body, posted.streamed_bytes) == (200, b"", len(LONG))
    request = requests[0].lower()
    assert b"accept: application/octet-stream\r\n" in request
    assert b"accept-encoding: identity" in request
    assert (request.count(b"accept:"), request.count(b"accept-encoding:"), transport.budget.held) == (1, 1, 0)


async def test_of_any_other_status_a_sink_takes_nothing(serve: Serve, streamed: Streamed) -> None:
    sink = RecordingSink()
    url = await serve(saying(b"HTTP/1.1 406 Not Acceptable\r\ncontent-length: 2\r\n\r\n{}"))
    posted = await streamed(url, sink)
    assert (posted.status, posted.body, posted.streamed_bytes) == (406, b"{}", None)
    assert (sink.headers, sink.taken) == (None, b"")


BROKEN = {
    "too short": b"content-length: 9\r\n\r\n1234",
    "too few chunks": b"transfer-encoding: chunked\r\n\r\n4\r\n1234\r\n",
    "packed": b"content-encoding: gzip\r\ncontent-length: 4\r\n\r\n1234",
}


@pytest.mark.parametrize("how", BROKEN)
async def test_what_a_sink_is_handed_in_part_is_a_broken_connection(serve: Serve, streamed: Streamed, how: str) -> None:
    with pytest.raises(Unavailable):
        await streamed(await serve(saying(OK + BROKEN[how])), RecordingSink())


async def test_a_sink_that_wants_no_more_ends_the_exchange(serve: Serve, streamed: Streamed) -> None:
    for head, limit, says in ((b"x-kind: bad\r\n", 1, "of no use"), (b"x-kind: good\r\n", 10, "too long")):
        url = await serve(saying(OK + head + b"content-length: %d\r\n\r\n%b" % (len(LONG), LONG)))
        with pytest.raises(BadAnswer, match=says):
            await streamed(url, RecordingSink(limit))
