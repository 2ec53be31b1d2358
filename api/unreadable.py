"""What is no HTTP: told so like every other refusal, without repeating a byte of it, for a key may be among them."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from api.edge import ALWAYS
from api.errors import Problem, refusal

WORDS: Final = "this is not a request that HTTP/1.1 allows; the connection is closed"


class Connection(RequestHandler):
    """One connection, which the server's own parser reads."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what could not be read; its own words would quote it."""
        own = super().handle_error(request, status, exc, message)  # logs, and ends the connection
        words = WORDS if own.status < 500 else "something went wrong on our side"
        answer = refusal("whole", Problem(400 if own.status < 500 else 500, words))
        headers = {**ALWAYS, "Cache-Control": "no-store"}
        told = web.Response(body=answer.body, status=answer.status, content_type=answer.content_type, headers=headers)
        told.force_close()
        return told


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)


class Runner(web.AppRunner):
    """Runs an application on such connections."""

    __slots__ = ()

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=made._loop,
            **made._kwargs,
        )
