"""How bytes reach an endpoint and come back: passed in, so that tests can fake it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from chainfolio.errors import Unavailable
from chainfolio.memory import ByteBudget, Lease
from chainfolio.transport.exchange import (
    CONNECT_S,
    MAX_BODY,
    PIECE,
    Body,
    HttpResponse,
    NoResponse,
    Sink,
    StreamedBody,
    asked_by,
    retry_after,
    room_for,
    unreachable,
)

if TYPE_CHECKING:
    import aiohttp

    from chainfolio.transport.plain_http import PlainTransport


class Transport(Protocol):
    """Posts a JSON body.

    Raises Unavailable if nothing usable came back, and ResponseTooLarge if the body outgrew its cap.
    """

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """One exchange; no retry, no redirect."""

    async def close(self) -> None:
        """Let go of all connections."""


class WebTransport(Transport, Protocol):
    """A transport that also asks by the address alone."""

    async def get(self, source: str, url: str, timeout_s: float) -> HttpResponse:
        """As `post`, without a body."""

    async def stream(self, source: str, url: str, sink: Sink, timeout_s: float) -> HttpResponse:
        """As `get`, with all that is there handed to a sink as it arrives. Of any status but 200 the body is kept."""


class HttpTransport:
    """aiohttp, or what is lighter where there is no TLS; redirects refused, the body bounded while it is read.
    `headers` are sent along with everything; to each host there are so many `connections` at most."""

    def __init__(
        self,
        budget: ByteBudget | None = None,
        *,
        connections: int = 16,
        max_body: int = MAX_BODY,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.budget = budget or ByteBudget()
        self._connections, self._headers = connections, headers or {}
        self._max_body = min(max_body, self.budget.alone)
        self._session: aiohttp.ClientSession | None = None
        self._plain: PlainTransport | None = None

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """One exchange; no retry, no redirect."""
        return await self._exchange(source, url, body, timeout_s)

    async def get(self, source: str, url: str, timeout_s: float) -> HttpResponse:
        """As `post`, of what is asked by its address alone."""
        return await self._exchange(source, url, None, timeout_s)

    async def stream(self, source: str, url: str, sink: Sink, timeout_s: float) -> HttpResponse:
        """As `get`, of what a sink takes as it arrives."""
        return await self._exchange(source, url, None, timeout_s, sink)

    async def _exchange(
        self, source: str, url: str, body: bytes | None, timeout_s: float, sink: Sink | None = None
    ) -> HttpResponse:
        if url.lower().startswith("http://"):
            if self._plain is None:
                from chainfolio.transport.plain_http import PlainTransport

                self._plain = PlainTransport(
                    self.budget, connections=self._connections, max_body=self._max_body, headers=self._headers
                )
            return await self._plain.exchange(source, url, body, timeout_s, sink)
        lease = self.budget.lease()
        try:
            return await self._read(source, url, body, timeout_s, lease, sink)
        except BaseException:  # whatever ends it: nobody else knows of the lease
            lease.give_back()
            raise

    async def _read(
        self, source: str, url: str, question: bytes | None, timeout_s: float, lease: Lease, sink: Sink | None
    ) -> HttpResponse:
        import aiohttp  # here, for it takes a fifth of a second

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=self._connections),
                read_bufsize=PIECE,
                auto_decompress=False,
                trust_env=False,
            )
        usual = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "gzip"}
        headers = {**usual, **self._headers, **(asked_by(sink) if sink is not None else {})}
        method = "GET" if question is None else "POST"
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(CONNECT_S, timeout_s))
        try:
            async with self._session.request(
                method, url, data=question, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                encoding, size = answer.headers.get("content-encoding"), answer.content_length
                if sink is not None and answer.status == 200:
                    more = {name.lower().encode("latin-1"): value for name, value in answer.headers.items()}
                    handed = StreamedBody(sink, {name: more[name] for name in sink.reads & more.keys()}, size, encoding)
                    async for piece in answer.content.iter_any():
                        await handed.take(piece)
                    return HttpResponse(answer.status, None, b"", lease, handed.took)
                body = Body(source, room_for(question, self._max_body), lease, encoding)
                body.announced(size)
                async for piece in answer.content.iter_any():
                    await body.take(piece)
                return HttpResponse(answer.status, retry_after(answer.headers.get("retry-after")), body.whole(), lease)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise unreachable(source, error) from None
        except TimeoutError:
            raise NoResponse(source, timeout_s) from None
        except (aiohttp.ClientError, ConnectionError, ValueError, zlib.error) as error:
            raise Unavailable(source, f"the connection broke ({type(error).__name__})") from None

    async def close(self) -> None:
        """Let go of all connections."""
        if self._plain is not None:
            await self._plain.close()
            self._plain = None
        if self._session is not None:
            await self._session.close()
            self._session = None
