"""One request as the pipeline and the edge see it: the client's request and its state so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aiohttp import web

from chainfolio.api.connection import rest_is_costly

if TYPE_CHECKING:
    from aiohttp import HttpVersion
    from multidict import CIMultiDictProxy, MultiMapping
    from yarl import URL

    from chainfolio.api.charge import Charge
    from chainfolio.api.keys import Principal

MAX_BODY: Final = 1024 * 1024
MAX_CHUNKS: Final = 1024  # of a body, of any size; if there are more,
SMALL_CHUNK: Final = 64  # they must hold this many bytes on average: a chunk costs as much time as a hundred bytes


class Request:
    """A client's request and its state.

    Attributes:
        id: Id of the request in log, ledger and answer.
        operation: Id of the route, `none` if unknown.
        route: Path of the route with the names of its parameters. No other part of a path may be logged, because a
            client may have put a key there.
        match: Parameters of the path.
        extras: Headers that the answer gets in any case.
        principal: The caller, None before authentication.
        charge: Reserved credits, None if there are none.
        counted: Account whose running requests include this one, empty if it was not counted.
        is_running: True while it counts among the running requests; a stream does not, once its head is sent.
    """

    def __init__(self, http: web.BaseRequest, max_body: int = MAX_BODY) -> None:
        """Wrap a request of aiohttp; the edge and the pipeline fill in the rest."""
        self._http, self._max_body = http, max_body
        self._content: bytes | None = None
        self.method: str = http.method
        self.headers: CIMultiDictProxy[str] = http.headers
        self.rel_url: URL = http.rel_url
        self.id = ""
        self.operation = "none"
        self.route = ""
        self.match: Mapping[str, str] = {}
        self.extras: dict[str, str] = {}
        self.principal: Principal | None = None
        self.charge: Charge | None = None
        self.counted = ""
        self.is_running = True

    @property
    def version(self) -> HttpVersion:
        """HTTP version of the request."""
        return self._http.version

    @property
    def path(self) -> str:
        """The decoded path."""
        return self.rel_url.path

    @property
    def raw_path(self) -> str:
        """Path and query as they were sent."""
        return self._http.raw_path

    @property
    def query(self) -> MultiMapping[str]:
        """The parameters of the query."""
        return self.rel_url.query

    @property
    def has_body(self) -> bool:
        """True if a body follows the head."""
        return self._http.body_exists

    @property
    def head_bytes(self) -> int:
        """Size of the headers in bytes."""
        return sum(len(name) + len(value) + 4 for name, value in self._http.raw_headers)

    @property
    def keep_alive(self) -> bool:
        """True if the connection can be reused: the client allows it and asks for no upgrade.

        The unread rest of the body must be cheap to skip.
        """
        return self._http.keep_alive and "Upgrade" not in self.headers and not rest_is_costly(self._http)

    async def read(self) -> bytes:
        """Read and return the whole body, after `100 Continue` if the client expects that; b"" without a body.

        Raises:
            HTTPRequestEntityTooLarge: The body is longer than the maximum.
            RequestPayloadError: The body has too many small chunks, or is not encoded as the headers say.
        """
        if not self.has_body:
            return b""
        if self._content is None:
            if "Expect" in self.headers:
                await self._http.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            parts, length = [], 0
            async for part, _ in self._http.content.iter_chunks():
                parts.append(part)
                length += len(part)
                if length > self._max_body:
                    raise web.HTTPRequestEntityTooLarge(self._max_body, length)
                if len(parts) > MAX_CHUNKS and length < len(parts) * SMALL_CHUNK:
                    raise web.RequestPayloadError("the chunks are too small")
            self._content = b"".join(parts)
        return self._content
