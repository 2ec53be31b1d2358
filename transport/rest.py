"""One endpoint that is asked by paths, as REST has it: what a status means there, and each answer in its type."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, ResponseTooLarge, SourceError, UnsupportedMethod
from chainfolio.transport.exchange import HttpResponse, Sink
from chainfolio.transport.http import WebTransport
from chainfolio.transport.http_endpoint import HttpEndpoint, not_json, refusal_of

T = TypeVar("T")
Decode = Callable[[str, bytes], T]
CALL: Final = 5  # so many parts of a path name what is asked: what follows is of which block or state


class ResourceNotFound(SourceError):
    """404: the endpoint has nothing of that name. Whoever asked knows whether that is an answer."""


class RestEndpoint(HttpEndpoint):
    """One URL that has paths. While it is not `checked`, it is asked by `handshake` who it is before anything else.
    `secret` is sent along with everything, so no text shows it."""

    def __init__(
        self,
        url: str,
        transport: WebTransport,
        environment: Environment,
        *,
        timeout_s: float,
        concurrency: int,
        max_rps: int = 0,
        secret: str = "",
    ) -> None:
        super().__init__(
            url.rstrip("/"), transport, environment, timeout_s=timeout_s, concurrency=concurrency, max_rps=max_rps
        )
        if secret:
            self._secrets = (*self._secrets, secret)
        self.handshake: Callable[[RestEndpoint], Awaitable[None]] | None = None
        self._web = transport
        self._greeting = asyncio.Lock()

    async def ensure_handshake(self) -> None:
        """Ask who it is, once; what `handshake` raises where it is somebody else."""
        if not self.checked and self.handshake is not None:
            async with self._greeting:
                if not self.checked:
                    await self.handshake(self)
                    self.checked = True

    async def ask(self, path: str, decode: Decode[T], body: Any = None) -> T:
        """What a path says: got, or with a body posted. ResourceNotFound for 404."""
        await self.ensure_handshake()
        return await self.put(path, decode, body)

    async def put(self, path: str, decode: Decode[T], body: Any = None) -> T:
        """As `ask`, of whomever it may be: without a handshake."""
        question = None if body is None else msgspec.json.encode(body)

        async def send() -> HttpResponse:
            if question is None:
                return await self._web.get(self.name, self.url + path, self._timeout_s)
            return await self._web.post(self.name, self.url + path, question, self._timeout_s)

        self._count(path)
        return await self._retrying(send, lambda content: decode(self.name, content), 1, len(question or b""))

    def _count(self, path: str) -> None:
        self.calls["/".join(path.split("/", CALL)[:CALL])] += 1

    async def stream(self, path: str, sink: Sink) -> None:
        """Hand what a path says to a sink while it arrives: once, for nobody takes back what it took. The error of a
        status is that of `ask`."""
        await self.ensure_handshake()
        self._count(path)
        try:
            posted, _ = await self._exchanged(
                lambda: self._web.stream(self.name, self.url + path, sink, self._timeout_s), 0, 1, can_repeat=False
            )
            self._checked(posted)
        except SourceError as error:
            raise self._hushed(error) from None
        posted.give_back()

    def response_error(self, posted: HttpResponse) -> SourceError | None:
        """The error that a status is."""
        if posted.status == 404:
            return ResourceNotFound(self.name, "it has nothing of that name (404)")
        if posted.status in (405, 501):
            return UnsupportedMethod(self.name, f"it does not serve that part of the API (HTTP {posted.status})")
        if posted.status == 414:
            return ResponseTooLarge(self.name, "the node refuses an address of this length (414)")
        if (refusal := refusal_of(self.name, posted)) is not None:
            return refusal
        if posted.status != 200:
            return BadAnswer(self.name, f"HTTP status {posted.status}")
        return not_json(self.name, posted) if posted.took is None else None
