"""One request as the steps and the edge see it: what the client sent, and what has become of it so far."""

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
MAX_CHUNKS: Final = 1024  # of a body, which may be as small as they like; if there are more,
SMALL_CHUNK: Final = 64  # they hold so many bytes on average: each costs as much to take as a hundred bytes


class Request:
    """What a client asks. `id` is what log, ledger and answer call it, `match` the path's parameters.

    `operation` is the route that answers and `route` its path with the names of its parameters, which is all of a path
    that may be logged: a key may have been typed into the rest. `principal` is who asks, `charge` what is reserved for
    it: each once known.
    `counted` is the account among whose running requests this one is, `extras` are headers that the answer has,
    whatever it becomes.
    """

    def __init__(self, http: web.BaseRequest, max_body: int = MAX_BODY) -> None:
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

    @property
    def version(self) -> HttpVersion:
        """The version of HTTP that the client speaks."""
        return self._http.version

    @property
    def path(self) -> str:
        """The path, decoded."""
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
        """Whether a body follows the head."""
        return self._http.body_exists

    @property
    def head_bytes(self) -> int:
        """How long the headers are, as they were sent."""
        return sum([len(name) + len(value) + 4 for name, value in self._http.raw_headers])

    @property
    def keep_alive(self) -> bool:
        """Whether another request can follow: the client means to send one, for no other protocol, and what is left of
        this one is skipped without much work."""
        return self._http.keep_alive and "Upgrade" not in self.headers and not rest_is_costly(self._http)

    async def read(self) -> bytes:
        """The body. It is asked for first where the client waits for that; 413 where it is too long."""
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
