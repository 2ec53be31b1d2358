"""Headers of answers, including CORS and security headers; compression of bodies."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from aiohttp import HttpVersion11, web
from backports import zstd

from chainfolio.api.context import JSON, Answer
from chainfolio.api.errors import Problem, refusal
from chainfolio.api.request import Request
from chainfolio.settings import Server

MIN_COMPRESSED_BYTES: Final = 1024
MIN_THREAD_BYTES: Final = 128 * 1024  # longer bodies take more than about a millisecond: compress in a thread
MALFORMED_HTTP: Final = "this is not a request that HTTP/1.1 allows; the connection is closed"
MAX_KINDS: Final = 512

_ALWAYS: Final = {"Server": "chainfolio", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
_PREFLIGHT: Final = {
    "Access-Control-Allow-Headers": (
        "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Delegate-For, X-Request-Id"
    ),
    "Access-Control-Max-Age": "86400",
}
_ZERO_QUALITY = re.compile(r"\s*q\s*=\s*0(?:\.0{0,3})?\s*")


class ResponseHeaders:
    """Adds headers to answers; blocks of headers that many answers share are cached.

    `signature` is added to every answer. While `draining` is True, every answer closes its connection.
    """

    def __init__(self, server: Server, signature: Mapping[str, str]) -> None:
        self._cors, self._origins, self._signature = server.cors, server.cors_origins, signature
        self._fixed = lru_cache(MAX_KINDS)(self._header_block)
        self.draining = False

    def response(self, request: Request, answer: Answer, body: bytes, coding: str) -> web.StreamResponse:
        """Return the answer as aiohttp sends it; `body` is already encoded in `coding`, which may be empty.

        A streamed answer has no length.
        """
        origin = self._origin(request)
        preflight = origin != "" and request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        varies = len(body) >= MIN_COMPRESSED_BYTES or coding != ""
        extra = tuple(answer.headers.items()) if answer.headers else ()
        headers = self._fixed(answer.status, answer.content_type, origin, preflight, varies, coding, extra).copy()
        headers["X-Request-Id"] = request.id
        headers.update(request.extras)
        last = self.draining or not request.keep_alive or answer.status == 408
        if answer.stream is not None and request.version < HttpVersion11:
            last = True  # it has no length and no chunks: the end of the connection is its end
        if last:
            headers["Connection"] = "close"
        content = body if answer.file is None else answer.file
        if answer.stream is None:
            response: web.StreamResponse = web.Response(body=content, status=answer.status, headers=headers)
        else:
            response = web.StreamResponse(status=answer.status, headers=headers)
        if last:
            response.force_close()
        return response

    def _origin(self, request: Request) -> str:
        """Return the origin whose pages may read the answer: `*`, the request's origin, or empty for none."""
        if not self._cors or not self._origins:
            return "*" if self._cors else ""
        origin = request.headers.get("Origin", "")
        return origin if origin in self._origins else ""

    def unreadable(self) -> web.Response:
        """Return the answer to malformed HTTP, which must not quote the request as aiohttp's own message does."""
        answer = refusal("whole", Problem(400, MALFORMED_HTTP))
        headers = self._fixed(answer.status, answer.content_type, "", False, False, "", ()).copy()
        headers["Connection"] = "close"
        response = web.Response(body=answer.body, status=answer.status, headers=headers)
        response.force_close()
        return response

    def _header_block(
        self,
        status: int,
        kind: str,
        origin: str,
        preflight: bool,
        varies: bool,
        coding: str,
        extra: tuple[tuple[str, str], ...],
    ) -> dict[str, str]:
        """Return the headers that answers with these properties share."""
        headers = {**_ALWAYS, **self._signature, "Cache-Control": "no-store"}
        if status != 204:
            headers["Content-Type"] = kind if kind == JSON else f"{kind}; charset=utf-8"
        if origin:
            headers |= {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": "*"}
        if preflight:
            headers |= {"Access-Control-Allow-Methods": dict(extra).get("Allow", "OPTIONS"), **_PREFLIGHT}
        vary = ["Accept-Encoding"] * varies + ["Origin"] * bool(self._cors and self._origins)
        if vary:
            headers["Vary"] = ", ".join(vary)
        if coding:
            headers["Content-Encoding"] = coding
        headers.update(extra)
        return headers


def worth_compressing(request: Request, body: bytes) -> str:
    """Return the coding to compress a body with; empty if it is short or the client accepts none."""
    return coding_of(request.headers.get("Accept-Encoding", "")) if len(body) >= MIN_COMPRESSED_BYTES else ""


async def compressed(body: bytes, coding: str) -> bytes:
    """Return the compressed body; equal bodies give equal bytes. Long ones are compressed in a thread."""
    press = _COMPRESSORS[coding]
    return press(body) if len(body) < MIN_THREAD_BYTES else await asyncio.to_thread(press, body)


def _gzip(body: bytes) -> bytes:
    press = zlib.compressobj(level=4, wbits=31)
    return press.compress(body) + press.flush()


_COMPRESSORS: Final[Mapping[str, Callable[[bytes], bytes]]] = {"zstd": zstd.compress, "gzip": _gzip}


def coding_of(accept: str) -> str:
    """Return the preferred coding that an Accept-Encoding header accepts (q > 0); empty for none."""
    if not accept:
        return ""
    codings = {}
    for item in accept[:500].split(","):
        coding, _, parameter = item.partition(";")
        codings[coding.strip().lower().removeprefix("x-")] = not _ZERO_QUALITY.fullmatch(parameter)
    return next((coding for coding in _COMPRESSORS if codings.get(coding)), "")
