"""HTTP/1.1 client without TLS, for nodes in the local network; it uses no threads.

Importing aiohttp takes a tenth of a second, and its work on a small response takes longer than reading that response.
This client sends one request at a time over a connection and keeps the connection for the next request.
"""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from chainfolio.errors import Unavailable
from chainfolio.memory import ByteBudget, Lease
from chainfolio.transport.exchange import (
    CONNECT_S,
    PIECE,
    Body,
    HttpResponse,
    NoResponse,
    Sink,
    StreamedBody,
    accept_headers,
    response_limit,
    retry_after,
    unreachable,
)
from chainfolio.transport.http_connection import Connection, connect
from chainfolio.transport.http_head import (
    END,
    MAX_HEAD,
    Address,
    Head,
    check_trailer,
    chunk_size,
    encode_request,
    parse_address,
    parse_head,
)

_SCHEME = len("http://")
_MAX_INTERIM = 8  # responses of status 1xx before the final one
_CHUNKS_PER_TURN = 256  # then other tasks run: a body may consist of ten thousand chunks of one byte


@dataclass(frozen=True, slots=True)
class _Peer:
    """One server: its idle connections, and its own limit of parallel exchanges."""

    gate: asyncio.Semaphore
    idle: list[Connection] = field(default_factory=list)

    def idle_connection(self) -> Connection | None:
        """Take the newest reusable connection, None if there is none; close unusable ones before it."""
        while self.idle:
            connection = self.idle.pop()
            if connection.is_reusable:
                return connection
            connection.close()
        return None


@dataclass(frozen=True, slots=True)
class _Request:
    """An encoded request. The response goes to `sink`, or if None into at most `max_bytes` of memory."""

    source: str
    address: Address
    content: bytes
    max_bytes: int
    lease: Lease
    sink: Sink | None


class PlainTransport:
    """The client. `connections` is the maximum of parallel exchanges with each server."""

    def __init__(
        self, budget: ByteBudget, *, connections: int, max_body: int, headers: Mapping[str, str] | None = None
    ) -> None:
        """Prepare the client; nothing connects yet. `headers` are sent with every request."""
        self.budget, self._headers = budget, headers or {}
        self._max_body = max_body
        self._addresses: dict[str, Address] = {}
        self._peers = defaultdict[tuple[str, int], _Peer](lambda: _Peer(asyncio.Semaphore(connections)))
        self._is_closed = False

    async def exchange(
        self, source: str, url: str, body: bytes | None, timeout_s: float, sink: Sink | None = None
    ) -> HttpResponse:
        """Send a POST request, or GET if the body is None; follow no redirect.

        It may be sent twice, if an idle connection turns out to be closed. A `sink` gets the body if the status is 200.

        Raises:
            NoResponse: The exchange did not end within `timeout_s`.
            Unavailable: The connection failed, or the response is malformed.
            ResponseTooLarge: The body is larger than its limit.
        """
        try:
            address, content = self._encoded(url, body, sink)
        except ValueError as error:  # an invalid port
            raise unreachable(source, error) from None
        lease, is_answered = self.budget.lease(), False
        try:
            peer = self._peers[address.host, address.port]
            async with asyncio.timeout(timeout_s), peer.gate:
                max_bytes = response_limit(body, self._max_body)
                response = await self._send(peer, _Request(source, address, content, max_bytes, lease, sink))
                is_answered = True
                return response
        except TimeoutError:
            raise NoResponse(source, timeout_s) from None
        except (OSError, ValueError, zlib.error) as error:
            raise Unavailable(source, f"the connection broke ({type(error).__name__})") from None
        finally:
            if not is_answered:  # no response will return the lease
                lease.give_back()

    def _encoded(self, url: str, body: bytes | None, sink: Sink | None) -> tuple[Address, bytes]:
        """Return the address of a URL, cached unless a sink adds headers, and the bytes of the request.

        Raises ValueError for an invalid URL.
        """
        at = min((at for at in (url.find(mark, _SCHEME) for mark in "/?#") if at > 0), default=len(url))
        if sink is not None:
            address = parse_address(url[:at], {**self._headers, **accept_headers(sink)})
        elif (cached := self._addresses.get(url[:at])) is None:
            address = self._addresses[url[:at]] = parse_address(url[:at], self._headers)
        else:
            address = cached
        return address, encode_request(address, url[at:], body)

    async def _send(self, peer: _Peer, request: _Request) -> HttpResponse:
        """Send a request over an idle connection if there is one.

        If the server closes that connection without a byte, the request is sent again over a new one: every request
        may be sent twice.
        """
        if (connection := peer.idle_connection()) is not None:
            try:
                return await self._send_over(peer, connection, request)
            except ConnectionResetError:
                if connection.is_answered:
                    raise
        return await self._send_over(peer, await _connect(request.source, request.address), request)

    async def _send_over(self, peer: _Peer, connection: Connection, request: _Request) -> HttpResponse:
        """Send a request over a connection and read the response.

        The connection is then idle if the server keeps it open; else, and after an error, it is closed.
        """
        is_kept = False
        try:
            connection.send(request.content)
            sink = request.sink
            head = await _read_head(connection, sink.reads if sink is not None else frozenset())
            if sink is not None and head.status == 200:
                stream = StreamedBody(sink, head.extra, head.length, head.encoding)
                await _read(connection, head, stream)
                is_kept = head.is_kept and not self._is_closed
                return HttpResponse(head.status, None, b"", request.lease, stream.size)
            body = Body(request.source, request.max_bytes, request.lease, head.encoding)
            body.announce_size(head.length)
            await _read(connection, head, body)
            is_kept = head.is_kept and not self._is_closed
            return HttpResponse(head.status, retry_after(head.retry_after), body.content(), request.lease)
        finally:
            if is_kept:
                connection.mark_idle()
                peer.idle.append(connection)
            else:
                connection.close()

    async def close(self) -> None:
        """Close idle connections now, and those in use after their response."""
        self._is_closed = True
        for peer in self._peers.values():
            while peer.idle:
                peer.idle.pop().close()
        await asyncio.sleep(0)  # the event loop closes them at its next turn


async def _connect(source: str, address: Address) -> Connection:
    """Connect within CONNECT_S; Unavailable if it fails."""
    try:
        async with asyncio.timeout(CONNECT_S):
            return await connect(address.host, address.port)
    except (OSError, ValueError) as error:
        raise unreachable(source, error) from None


async def _read_head(connection: Connection, extra: frozenset[bytes]) -> Head:
    """Return the head of the final response; ValueError if only interim ones or an upgrade come."""
    for _ in range(_MAX_INTERIM):
        head = parse_head(await connection.read_until(END, MAX_HEAD), extra)
        if head.status >= 200:
            return head
        if head.status == 101:
            break
    raise ValueError("no answer but interim ones")


async def _read(connection: Connection, head: Head, body: Body | StreamedBody) -> None:
    """Read a complete body; ResponseTooLarge as soon as it exceeds its limit."""
    if head.is_chunked:
        await _read_chunks(connection, body)
    elif head.length is None:
        while len(piece := await connection.read_to_end()):
            await body.take(piece)
    else:
        await _read_bytes(connection, head.length, body)


async def _read_chunks(connection: Connection, body: Body | StreamedBody) -> None:
    """Read a chunked body and its trailers into `body`.

    Raises ValueError for chunks of another length than announced, or trailers over MAX_HEAD bytes.
    """
    for count in itertools.count(1):
        if not (size := chunk_size(await connection.read_until(b"\r\n", MAX_HEAD))):
            break
        await _read_bytes(connection, size, body)
        await connection.read_until(b"\r\n", 0)  # ValueError if the chunk is longer than announced
        if not count % _CHUNKS_PER_TURN:
            await asyncio.sleep(0)
    remaining = MAX_HEAD
    while trailer := await connection.read_until(b"\r\n", remaining):
        check_trailer(trailer)
        remaining -= len(trailer)


async def _read_bytes(connection: Connection, count: int, body: Body | StreamedBody) -> None:
    while count:
        piece = await connection.read_piece(min(count, PIECE))
        count -= len(piece)
        await body.take(piece)
