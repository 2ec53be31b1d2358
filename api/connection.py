"""A connection: its requests one after another in one task, and each answer in one write.

The server's own parser reads; what it cannot read is no HTTP and is told so like every other refusal, without repeating
a byte of it, for a key may be among them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from api.request import Request

LINGER_S: Final = 10.0
Serve = Callable[[Request], Awaitable[None]]


class Connection(RequestHandler):
    """One connection. `serve` answers a request by `send`, `unreadable` is the whole answer to what is no request.

    Where the server's own connection would start a task, make a writer and put together an answer for each request,
    this one does with the task it has.
    """

    __slots__ = ("_serve", "_unreadable", "loop", "max_body")

    no_writer: AbstractStreamWriter = None  # type: ignore[assignment]  # answers are sent here, not through a writer

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        super().__init__(server, loop=loop, **options)
        self.loop, self.max_body = loop, server.max_body
        self._serve, self._unreadable = server.serve, server.unreadable

    @property
    def task(self) -> asyncio.Task[None]:
        """The task that answers here."""
        assert self._task_handler is not None, "made with the connection"
        return self._task_handler

    @property
    def ending(self) -> bool:
        """Whether no further request is read here: the server drains, or a client meant to change the protocol."""
        return self._close or self._force_close or (self._upgraded and not self._messages)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing may wait to be written: to drain is then to be woken when the system has every byte."""
        super().connection_made(transport)
        if self.transport is not None:
            self.transport.set_write_buffer_limits(0)

    async def send(self, head: bytes, body: bytes = b"") -> None:
        """Write an answer, or a part of one, and return once the system has taken every byte; from then on they travel
        without us. ConnectionResetError where the client went before."""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone")
        if body:
            transport.writelines((head, body))
        else:
            transport.write(head)
        if self.writing_paused:
            await self._drain_helper()
            if self.writing_paused:  # woken by the end of the connection
                raise ConnectionResetError("the client has gone")

    async def start(self) -> None:
        """Answer requests in the order in which they came."""
        assert self._manager is not None
        going_on = True
        while going_on and not self._force_close:
            if not self._messages:
                await self._more()
            message, payload = self._messages.popleft()
            if self._parser is not None:
                self._parser.message_consumed()
            if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
                self._resume_reading_if_drained()
            if isinstance(message, RawRequestMessage):
                going_on = await self._answered(message, payload)
                self._keep_alive_from_now()
            else:
                going_on = False
                await self._told(self._unreadable())
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    async def _more(self) -> None:
        try:
            self._waiter = self.loop.create_future()
            await self._waiter
        finally:
            self._waiter = None

    async def _answered(self, message: RawRequestMessage, payload: StreamReader) -> bool:
        """Answer one request; whether another may follow."""
        request = Request(message, payload, self, self.max_body)
        self._request_in_progress, self._current_request = True, request
        try:
            await self._serve(request)
            self._done()
            if not payload.is_eof():
                await self._left_unread(payload)
        except asyncio.CancelledError:
            self.force_close()
            raise
        except ConnectionError:
            return False
        except Exception as error:  # a fault of ours after the answer had begun: all that is left is to end
            self.log_exception("Unhandled exception", exc_info=error)
            self.force_close()
            return False
        finally:
            self._done()
            request._task = None  # type: ignore[assignment]  # else the two hold each other
        self._keepalive = request.keep_alive and payload.is_eof()
        return self._keepalive

    def _done(self) -> None:
        """Nothing more is to be sent: whoever waits for that, to end the server, goes on."""
        self._request_in_progress, self._current_request = False, None
        if self._handler_waiter is not None and not self._handler_waiter.done():
            self._handler_waiter.set_result(None)

    async def _told(self, answer: bytes) -> None:
        self._keepalive = False
        try:
            await self.send(answer)
        except ConnectionError:
            return

    async def _left_unread(self, payload: StreamReader) -> None:
        """Read what of a body nobody wanted, for some time: closing at once could take the answer away with it."""
        try:
            async with asyncio.timeout(LINGER_S):
                while not payload.is_eof() and not self._force_close:
                    await payload.readany()
        except (TimeoutError, web.RequestPayloadError):
            return

    def _keep_alive_from_now(self) -> None:
        if not self._keepalive:
            return
        self._next_keepalive_close_time = self.loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self.loop.call_at(self._next_keepalive_close_time, self._process_keepalive)


class Server(web.Server):
    """Makes connections for whoever answers their requests, and waits for them at its end."""

    def __init__(self, serve: Serve, unreadable: Callable[[], bytes], max_body: int, **options: Any) -> None:
        super().__init__(_never, handler_cancellation=True, **options)  # nobody works, or pays, for who has gone
        self.serve, self.unreadable, self.max_body = serve, unreadable, max_body

    def __call__(self) -> RequestHandler:
        """One more connection."""
        return Connection(self, self._loop, logger=logging.getLogger("chainfolio.http"), **self._kwargs)


async def _never(_: web.BaseRequest) -> web.StreamResponse:
    raise AssertionError("connections answer by themselves")
