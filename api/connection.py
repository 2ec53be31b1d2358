"""Connections of the public web server, and when an answer counts as sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import web

from api.guard import Guard, address_of

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
            return await self.served.serve(http)
        finally:
            connection.answering, connection.since_s = False, self.guard.now_s()

    def __call__(self) -> web.RequestHandler:
        """One more connection."""
        return Connection(self, loop=asyncio.get_running_loop(), **self.options)


class Connection(web.RequestHandler):
    """One connection: aiohttp reads the requests of a client one after another and calls the handler."""

    __slots__ = ("answering", "guard", "head_s", "progress", "served", "since_s")

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(server, **options)
        self.served, self.guard, self.answering = server.served, server.guard, False
        self.since_s = self.guard.now_s()
        self.head_s: float | None = self.since_s
        self.progress = (0, self.since_s)

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
        if not self.answering and self.head_s is None:
            self.head_s = self.guard.now_s()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """It makes room for another."""
        self.guard.leave(self)
        super().connection_lost(exc)

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
