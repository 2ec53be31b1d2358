"""HTTP transports: interfaces that tests can implement, and the client for all endpoints."""

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
    accept_headers,
    response_limit,
    retry_after,
    unreachable,
)

if TYPE_CHECKING:
    import aiohttp

    from chainfolio.transport.plain_http import PlainTransport


class Transport(Protocol):
    """Sends POST requests with a JSON body."""

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """Send one request; no retry, no redirect.

        Args:
            source: The endpoint's name in errors.
            url: The full address.
            body: JSON.
            timeout_s: Limit of the whole exchange.

        Raises:
            Unavailable: No complete response arrived.
            ResponseTooLarge: The body is larger than its limit.
        """

    async def close(self) -> None:
        """Close all connections."""


class WebTransport(Transport, Protocol):
    """A transport that also sends GET requests."""

    async def get(self, source: str, url: str, timeout_s: float) -> HttpResponse:
        """Send a GET request; errors as for `post`."""

    async def stream(self, source: str, url: str, sink: Sink, timeout_s: float) -> HttpResponse:
        """Send a GET request and pass the body to a sink. If the status is not 200, the response has the body."""


class HttpTransport:
    """The client for all endpoints: aiohttp for https, PlainTransport for http.

    It refuses redirects, and limits a body while reading it.

    Args:
        budget: Bytes that all bodies of the process may take together.
        connections: Maximum number for each host.
        max_body: Maximum size of a response in bytes.
        headers: Sent with every request.
    """

    def __init__(
        self,
        budget: ByteBudget | None = None,
        *,
        connections: int = 16,
        max_body: int = MAX_BODY,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the client; nothing connects yet.

        Args:
            budget: Bounds the bytes of all responses together.
            connections: The most at once to each host.
            max_body: The most bytes of one response.
            headers: Sent with every request.
        """
        self.budget = budget or ByteBudget()
        self._connections, self._headers = connections, headers or {}
        self._max_body = min(max_body, self.budget.alone)
        self._session: aiohttp.ClientSession | None = None
        self._plain: PlainTransport | None = None

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """Send one POST request; no retry, no redirect."""
        return await self._exchange(source, url, body, timeout_s)

    async def get(self, source: str, url: str, timeout_s: float) -> HttpResponse:
        """Send one GET request; no retry, no redirect."""
        return await self._exchange(source, url, None, timeout_s)

    async def stream(self, source: str, url: str, sink: Sink, timeout_s: float) -> HttpResponse:
        """Send one GET request and pass the body to a sink if the status is 200."""
        return await self._exchange(source, url, None, timeout_s, sink)

    async def _exchange(
        self, source: str, url: str, body: bytes | None, timeout_s: float, sink: Sink | None = None
    ) -> HttpResponse:
        """Send one request: http by the plain transport, https by aiohttp. Raises SourceError; no retry."""
        if not url.lower().startswith("http://"):
            return await self._exchange_by_aiohttp(source, url, body, timeout_s, sink)
        if self._plain is None:
            from chainfolio.transport.plain_http import PlainTransport

            self._plain = PlainTransport(
                self.budget, connections=self._connections, max_body=self._max_body, headers=self._headers
            )
        return await self._plain.exchange(source, url, body, timeout_s, sink)

    async def _exchange_by_aiohttp(
        self, source: str, url: str, body: bytes | None, timeout_s: float, sink: Sink | None = None
    ) -> HttpResponse:
        """Send one request by aiohttp; if it fails, its memory is given back and the error raised."""
        lease = self.budget.lease()
        try:
            return await self._read(source, url, body, timeout_s, lease, sink)
        except BaseException:  # also if cancelled: no response will return the lease
            lease.give_back()
            raise

    async def _read(
        self, source: str, url: str, content: bytes | None, timeout_s: float, lease: Lease, sink: Sink | None
    ) -> HttpResponse:
        """Send one request and read its body, within the time, or stream it into `sink` if the status is 200.

        Raises Unavailable, or NoResponse after the time.
        """
        import aiohttp  # here: the import takes a fifth of a second

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=self._connections),
                read_bufsize=PIECE,
                auto_decompress=False,
                trust_env=False,
            )
        defaults = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "gzip"}
        headers = {**defaults, **self._headers, **(accept_headers(sink) if sink is not None else {})}
        method = "GET" if content is None else "POST"
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(CONNECT_S, timeout_s))
        try:
            async with self._session.request(
                method, url, data=content, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                encoding, size = response.headers.get("content-encoding"), response.content_length
                if sink is not None and response.status == 200:
                    fields = {name.lower().encode("latin-1"): value for name, value in response.headers.items()}
                    sink_fields = {name: fields[name] for name in sink.reads & fields.keys()}
                    stream = StreamedBody(sink, sink_fields, size, encoding)
                    async for piece in response.content.iter_any():
                        await stream.take(piece)
                    return HttpResponse(response.status, None, b"", lease, stream.size)
                body = Body(source, response_limit(content, self._max_body), lease, encoding)
                body.announce_size(size)
                async for piece in response.content.iter_any():
                    await body.take(piece)
                pause_s = retry_after(response.headers.get("retry-after"))
                return HttpResponse(response.status, pause_s, body.content(), lease)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise unreachable(source, error) from None
        except TimeoutError:
            raise NoResponse(source, timeout_s) from None
        except (aiohttp.ClientError, ConnectionError, ValueError, zlib.error) as error:
            raise Unavailable(source, f"the connection broke ({type(error).__name__})") from None

    async def close(self) -> None:
        """Close all connections."""
        if self._plain is not None:
            await self._plain.close()
            self._plain = None
        if self._session is not None:
            await self._session.close()
            self._session = None
