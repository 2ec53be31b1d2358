"""One REST endpoint: requests by path, typed results, and the meaning of statuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, ResponseTooLarge, SourceError, UnsupportedMethod
from chainfolio.transport.exchange import HttpResponse, Sink
from chainfolio.transport.http import WebTransport
from chainfolio.transport.http_endpoint import HttpEndpoint, json_error, status_error

T = TypeVar("T")
Decode = Callable[[str, bytes], T]
CALL: Final = 5  # so many parts of a path are counted as its method; the rest names a block or state


class ResourceNotFound(SourceError):
    """Status 404. The caller decides whether it is a valid result."""


class RestEndpoint(HttpEndpoint):
    """One base URL. Until it is `checked`, `handshake` verifies its identity before the first request.

    The transport sends `secret` with each request, so texts hide it.
    """

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
        """Prepare an endpoint; no request is sent. `secret` is hidden in errors, as that in the URL."""
        super().__init__(
            url.rstrip("/"), transport, environment, timeout_s=timeout_s, concurrency=concurrency, max_rps=max_rps
        )
        if secret:
            self._secrets = (*self._secrets, secret)
        self.handshake: Callable[[RestEndpoint], Awaitable[None]] | None = None
        self._web = transport
        self._handshake_lock = asyncio.Lock()

    async def ensure_handshake(self) -> None:
        """Run the handshake unless it succeeded before. Its error is raised if the node is another one."""
        if not self.checked and self.handshake is not None:
            async with self._handshake_lock:
                if not self.checked:
                    await self.handshake(self)
                    self.checked = True

    async def ask(self, path: str, decode: Decode[T], body: object = None) -> T:
        """Return the decoded response to a GET, or to a POST if there is a body; failures are retried.

        Raises:
            ResourceNotFound: Status 404.
            SourceError: The handshake or the request failed, or `decode` refused the response.
        """
        await self.ensure_handshake()
        return await self.ask_unchecked(path, decode, body)

    async def ask_unchecked(self, path: str, decode: Decode[T], body: object = None) -> T:
        """Do the same as `ask` without a handshake: GET without a body, else POST it as JSON."""
        content = None if body is None else msgspec.json.encode(body)

        async def send() -> HttpResponse:
            if content is None:
                return await self._web.get(self.name, self.url + path, self._timeout_s)
            return await self._web.post(self.name, self.url + path, content, self._timeout_s)

        self._count(path)
        return await self._retrying(send, lambda response: decode(self.name, response), 1, len(content or b""))

    def _count(self, path: str) -> None:
        self.calls["/".join(path.split("/", CALL)[:CALL])] += 1

    async def stream(self, path: str, sink: Sink) -> None:
        """Send a GET request and pass the body to a sink while it arrives.

        It is sent once only, because a sink cannot undo what it received. Errors are those of `ask` and of the sink.
        """
        await self.ensure_handshake()
        self._count(path)
        try:
            response, _ = await self._exchange(
                lambda: self._web.stream(self.name, self.url + path, sink, self._timeout_s), 0, 1, can_repeat=False
            )
            self._checked(response)
        except SourceError as error:
            raise self._redact(error) from None
        response.give_back()

    def response_error(self, response: HttpResponse) -> SourceError | None:
        """Return the error of a status other than 200, or of a body that is no JSON.

        404 is ResourceNotFound, 405 and 501 UnsupportedMethod, 414 (a long address) ResponseTooLarge, and others
        BadAnswer unless `status_error` has a type for them. None for a usable response. The body of a stream is not
        checked.
        """
        if response.status == 404:
            return ResourceNotFound(self.name, "it has nothing of that name (404)")
        if response.status in (405, 501):
            return UnsupportedMethod(self.name, f"it does not serve that part of the API (HTTP {response.status})")
        if response.status == 414:
            return ResponseTooLarge(self.name, "the node refuses an address of this length (414)")
        if (error := status_error(self.name, response)) is not None:
            return error
        if response.status != 200:
            return BadAnswer(self.name, f"HTTP status {response.status}")
        return json_error(self.name, response) if response.streamed_bytes is None else None
