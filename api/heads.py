"""What stands before an answer's body: status line and headers, with CORS and security; and the body compressed."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from aiohttp import HttpVersion11
from backports import zstd

from api.context import JSON, Answer
from api.errors import Problem, refusal
from api.request import Request
from chainfolio.seams import Clock

COMPRESS_FROM: Final = 1024
COMPRESS_ASIDE: Final = 128 * 1024  # more than about a millisecond of work leaves the loop to others
NO_HTTP: Final = "this is not a request that HTTP/1.1 allows; the connection is closed"
READS: Final = ("GET", "HEAD", "OPTIONS")
MANY_KINDS: Final = 512

_ALWAYS: Final = {"Server": "chainfolio", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
_OPEN: Final = {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "*"}
_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": ", ".join(READS),
    "Access-Control-Allow-Headers": "Authorization, X-Request-Id",
    "Access-Control-Max-Age": "86400",
}
_NOT_AT_ALL = re.compile(r"\s*q\s*=\s*0(?:\.0{0,3})?\s*")


class Heads:
    """Writes heads of answers. What most of them have alike is put together once; `signature` is on each of them."""

    def __init__(self, clock: Clock, cors: bool, signature: Mapping[str, str]) -> None:
        self._clock, self._cors, self._signature = clock, cors, signature
        self._fixed = lru_cache(MANY_KINDS)(self._put_together)
        self._at_s, self._date = 0, ""

    def of(self, request: Request, answer: Answer, length: int, coding: str) -> bytes:
        """The head of an answer whose body, in its coding, has this length; the empty line included."""
        method, extras, version = request.method, request.extras, request.version
        reads = self._cors and method in READS
        preflight = reads and method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        varies = length >= COMPRESS_FROM or coding != ""
        own = tuple(answer.headers.items()) if answer.headers else ()
        fixed = self._fixed(answer.status, answer.content_type, reads, preflight, varies, coding, own)
        sized = "" if answer.status == 204 else f"Content-Length: {length}\r\n"
        more = "".join([f"{name}: {value}\r\n" for name, value in extras.items()])
        assert more.count("\n") == more.count("\r") == len(extras), "a header holds a line break"
        if not request.keep_alive:
            more += "Connection: close\r\n"
        elif version != HttpVersion11:
            more += "Connection: keep-alive\r\n"
        first = "HTTP/1.1" if version == HttpVersion11 else f"HTTP/{version[0]}.{version[1]}"
        return f"{first} {fixed}{sized}Date: {self._now()}\r\nX-Request-Id: {request.id}\r\n{more}\r\n".encode()

    def unreadable(self) -> bytes:
        """The whole answer to what is no HTTP request; the parser's own words would quote it."""
        answer = refusal("whole", Problem(400, NO_HTTP))
        fixed = self._fixed(answer.status, answer.content_type, False, False, False, "", ())
        length = len(answer.body)
        head = f"HTTP/1.1 {fixed}Content-Length: {length}\r\nDate: {self._now()}\r\nConnection: close\r\n\r\n"
        return head.encode() + answer.body

    def _now(self) -> str:
        if (now_s := self._clock.now_us() // 1_000_000) != self._at_s:
            self._at_s, self._date = now_s, formatdate(now_s, usegmt=True)
        return self._date

    def _put_together(
        self, status: int, kind: str, reads: bool, preflight: bool, varies: bool, coding: str,
        own: tuple[tuple[str, str], ...],
    ) -> str:  # fmt: skip
        """What heads of one kind have alike, from the status on."""
        headers = {**_ALWAYS, **self._signature, "Cache-Control": "no-store"}
        if status != 204:
            headers["Content-Type"] = kind if kind == JSON else f"{kind}; charset=utf-8"
        if reads:
            headers.update(_OPEN)
        if preflight:
            headers.update(_PREFLIGHT)
        if varies:
            headers["Vary"] = "Accept-Encoding"
        if coding:
            headers["Content-Encoding"] = coding
        headers.update(own)
        lines = [f"{status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers.items()), ""]
        text = "\r\n".join(lines)
        assert text.count("\n") == text.count("\r") == len(lines) - 1, "a header holds a line break"
        return text


def worth_pressing(request: Request, body: bytes) -> str:
    """The coding in which a body is worth sending to a client that takes it; empty for none."""
    return coding_of(request.headers.get("Accept-Encoding", "")) if len(body) >= COMPRESS_FROM else ""


async def pressed(body: bytes, coding: str) -> bytes:
    """A body, compressed: the same body is the same bytes."""
    press = _PRESSES[coding]
    return press(body) if len(body) < COMPRESS_ASIDE else await asyncio.to_thread(press, body)


def _gzip(body: bytes) -> bytes:
    press = zlib.compressobj(level=4, wbits=31)
    return press.compress(body) + press.flush()


_PRESSES: Final[Mapping[str, Callable[[bytes], bytes]]] = {"zstd": zstd.compress, "gzip": _gzip}


def coding_of(accept: str) -> str:
    """The best compression that an Accept-Encoding header names with a quality above zero; empty for none."""
    if not accept:
        return ""
    taken = {}
    for item in accept[:500].split(","):
        coding, _, parameter = item.partition(";")
        taken[coding.strip().lower().removeprefix("x-")] = not _NOT_AT_ALL.fullmatch(parameter)
    return next((coding for coding in _PRESSES if taken.get(coding)), "")
