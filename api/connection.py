"""Connections of the public web server, and when an answer counts as sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from aiohttp import web

from chainfolio.api.guard import Guard, address_of

MAX_SKIPPED: Final = 1024 * 1024  # bytes of a body that nobody wants to read
LINGER_S: Final = 2.0  # for a client to read its answer before the connection ends under what it still sends
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Served(Protocol):
    """What a server needs of whoever answers."""

    @property
    def serve(self) -> Handler:
        """Answers a request."""

    def unreadable(self) -> web.Response:
        """The answer to bytes that are no HTTP request."""


class Server(web.Server):
    """Makes connections, and waits for them at its end."""

    def __init__(self, served: Served, guard: Guard, **options: Any) -> None:
        super().__init__(self._answer, handler_cancellation=True)  # nobody works, or pays, for who has gone
        self.served, self.guard = served, guard
        self.options = {"logger": logging.getLogger("chainfolio.http"), **options}

    async def _answer(self, http: web.BaseRequest) -> web.StreamResponse:
        connection = http.protocol
        assert isinstance(connection, Connection), "made below"
        connection.answering, connection.head_s = True, None
        try:
            response = await self.served.serve(http)
        finally:
            connection.answering, connection.since_s = False, self.guard.now_s()
        if rest_is_costly(http):
            await connection.deafen()
        return response

    def __call__(self) -> web.RequestHandler:
        """One more connection."""
        return Connection(self, loop=asyncio.get_running_loop(), **self.options)


class Connection(web.RequestHandler):
    """One connection: aiohttp reads the requests of a client one after another and calls the handler."""

    __slots__ = ("answering", "guard", "head_s", "progress", "served", "since_s", "skipped")

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(server, **options)
        self.served, self.guard, self.answering = server.served, server.guard, False
        self.since_s = self.guard.now_s()
        self.head_s: float | None = self.since_s
        self.progress = (0, self.since_s)
        self.skipped: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing may wait to be written: to drain is then to be woken when the system has every byte."""
        admitted = self.guard.enter(self, address_of(transport.get_extra_info("peername")))
        super().connection_made(transport)
        if self.transport is not None:
            self.transport.set_write_buffer_limits(0)
        if not admitted:
            self.abort()

    def data_received(self, data: bytes) -> None:
        """What comes while nothing is being answered is the head of a request, which may not take for ever."""
        if self.skipped is not None:
            self._skip(len(data))
            return
        if not self.answering and self.head_s is None:
            self.head_s = self.guard.now_s()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """It makes room for another."""
        self.guard.leave(self)
        super().connection_lost(exc)

    async def deafen(self) -> None:
        """End it after what was answered. What the client still sends is not looked at: some of it is taken, so that a
        client that reads when it has sent everything comes to its answer."""
        self.skipped = 0
        if self.transport is not None and not self.transport.is_reading():
            self.transport.resume_reading()
        await asyncio.sleep(LINGER_S)
        self.force_close()

    def _skip(self, length: int) -> None:
        assert self.skipped is not None, "asked before"
        self.skipped += length
        if self.skipped > MAX_SKIPPED and self.transport is not None and self.transport.is_reading():
            self.transport.pause_reading()

    def unsent(self) -> int:
        """How many bytes of an answer the system has not taken yet."""
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    def abort(self) -> None:
        """End it at once."""
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """What is no HTTP is refused in our words: the server's own quote the request, and a key may be in it."""
        return self.served.unreadable() if status == 400 else super().handle_error(request, status, exc, message)


def rest_is_costly(http: web.BaseRequest) -> bool:
    """Whether what has not been read of the body takes more work to skip than its bytes: it is in chunks, which may be
    tiny, or compressed, or longer than any body that is taken."""
    if http.content.is_eof():
        return False
    return (
        "Transfer-Encoding" in http.headers
        or "Content-Encoding" in http.headers
        or (http.content_length or 0) > MAX_SKIPPED
    )


async def send(http: web.BaseRequest, response: web.Response) -> None:
    """Send an answer and return once the system has taken every byte; from then on they travel without us.

    ConnectionResetError where the client went before.
    """
    if http.transport is None:
        raise ConnectionResetError("the client has gone")
    await response.prepare(http)
    await response.write_eof()
    if http.transport is None:  # the wait for the system to take the rest was ended by the end of the connection
        raise ConnectionResetError("the client has gone")
