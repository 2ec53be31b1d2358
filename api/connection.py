"""Connections of the public web server, and when an answer counts as sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import web

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

    def __init__(self, served: Served, **options: Any) -> None:
        super().__init__(served.serve, handler_cancellation=True)  # nobody works, or pays, for who has gone
        self.served, self.options = served, {"logger": logging.getLogger("chainfolio.http"), **options}

    def __call__(self) -> web.RequestHandler:
        """One more connection."""
        return Connection(self, loop=asyncio.get_running_loop(), **self.options)


class Connection(web.RequestHandler):
    """One connection: aiohttp reads the requests of a client one after another and calls the handler."""

    __slots__ = ("served",)

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(server, **options)
        self.served = server.served

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing may wait to be written: to drain is then to be woken when the system has every byte."""
        super().connection_made(transport)
        if self.transport is not None:
            self.transport.set_write_buffer_limits(0)

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
