"""Connections of the public web server; an answer counts as sent once the system has taken every byte."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any, Final, Protocol

from aiohttp import web

from chainfolio.api.guard import Guard, address_of

MAX_SKIPPED: Final = 1024 * 1024  # bytes of an unwanted body that are discarded
LINGER_S: Final = 2.0  # for a client that still sends to read its answer before the connection is closed
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Application(Protocol):
    """The application that a server runs."""

    @property
    def serve(self) -> Handler:
        """Handler of a request."""

    def unreadable(self) -> web.Response:
        """Return the answer to bytes that are not an HTTP request."""


class Server(web.Server):
    """aiohttp server that creates guarded connections."""

    def __init__(self, app: Application, guard: Guard, **options: Any) -> None:
        super().__init__(self._answer, handler_cancellation=True)  # no work and no charge after a client disconnects
        self.app, self.guard = app, guard
        self.options = {"logger": logging.getLogger("chainfolio.http"), "lingering_time": LINGER_S, **options}

    async def _answer(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, and mark the connection as busy meanwhile.

        If the unread rest of a body is costly to skip, it is discarded and the connection is closed.
        """
        connection = http.protocol
        assert isinstance(connection, Connection), "made below"
        connection.answering, connection.head_s = True, None
        try:
            response = await self.app.serve(http)
        finally:
            connection.answering, connection.since_s = False, self.guard.now_s()
        if rest_is_costly(http):
            await connection.discard_rest()
        return response

    def __call__(self) -> web.RequestHandler:
        """Return a handler for a new connection."""
        return Connection(self, loop=asyncio.get_running_loop(), **self.options)


class Connection(web.RequestHandler):
    """One connection: aiohttp reads the requests of a client one after another and calls the handler."""

    __slots__ = ("answering", "app", "guard", "head_s", "progress", "since_s", "skipped")

    def __init__(self, server: Server, **options: Any) -> None:
        """Begin as a new connection that has sent nothing yet; `options` are those of aiohttp."""
        super().__init__(server, **options)
        self.app, self.guard, self.answering = server.app, server.guard, False
        self.since_s = self.guard.now_s()
        self.head_s: float | None = self.since_s
        self.progress = (0, self.since_s)
        self.skipped: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection with the guard, and abort it if it is not admitted.

        The write buffer limit is 0, so that draining ends only when the system has taken every byte.
        """
        admitted = self.guard.enter(self, address_of(transport.get_extra_info("peername")))
        super().connection_made(transport)
        if self.transport is not None:
            self.transport.set_write_buffer_limits(0)
        if not admitted:
            self.abort()

    def data_received(self, data: bytes) -> None:
        """Pass data to aiohttp and note when the head of a request begins, or discard it after `discard_rest`."""
        if self.skipped is not None:
            self._skip(len(data))
            return
        if not self.answering and self.head_s is None:
            self.head_s = self.guard.now_s()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Remove the connection from the guard."""
        self.guard.leave(self)
        super().connection_lost(exc)

    async def discard_rest(self) -> None:
        """Discard what the client still sends and close the connection after `LINGER_S`.

        Up to `MAX_SKIPPED` bytes are taken, so that a client that reads only after sending everything gets its answer.
        """
        self.skipped = 0
        if self.transport is not None and not self.transport.is_reading():
            self.transport.resume_reading()
        await asyncio.sleep(LINGER_S)
        self.force_close()

    def _skip(self, length: int) -> None:
        """Count bytes of a discarded body; after MAX_SKIPPED, no more are read."""
        assert self.skipped is not None, "asked before"
        self.skipped += length
        if self.skipped > MAX_SKIPPED and self.transport is not None and self.transport.is_reading():
            self.transport.pause_reading()

    def unsent(self) -> int:
        """Return the number of bytes that the system has not taken yet; 0 after the connection ended."""
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    def abort(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer malformed HTTP with our own 400: aiohttp's message quotes the request, which may hold a key."""
        return self.app.unreadable() if status == 400 else super().handle_error(request, status, exc, message)


def rest_is_costly(http: web.BaseRequest) -> bool:
    """Return True if the unread body is expensive to skip: chunked, compressed or too long."""
    if http.content.is_eof():
        return False
    return (
        "Transfer-Encoding" in http.headers
        or "Content-Encoding" in http.headers
        or (http.content_length or 0) > MAX_SKIPPED
    )


async def send(http: web.BaseRequest, response: web.StreamResponse, parts: AsyncIterable[bytes] | None = None) -> None:
    """Send an answer, or each of its parts as it comes, and return once the system has taken every byte.

    The next part is asked for only then, so that a client that reads slowly makes nothing pile up.

    Raises:
        ConnectionResetError: The client disconnected before.
    """
    if http.transport is None:
        raise ConnectionResetError("the client has gone")
    await response.prepare(http)
    if parts is not None and http.method != "HEAD":
        async for part in parts:
            await response.write(part)
            await http.writer.drain()
    await response.write_eof()
    if http.transport is None:  # the connection ended while the rest was being written
        raise ConnectionResetError("the client has gone")
