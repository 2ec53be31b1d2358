"""What every answer has, whatever it says: a request id, one line in the log, CORS, security headers, compression."""

from __future__ import annotations

import asyncio
import itertools
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final

import structlog
from aiohttp import HttpVersion10
from backports import zstd

from api.charge import Charge
from api.context import JSON, Answer, Parts
from api.errors import Problem, problem_of, refusal
from api.request import Request

MAX_URL: Final = 8 * 1024
MAX_HEADERS: Final = 16 * 1024
COMPRESS_FROM: Final = 1024
COMPRESS_ASIDE: Final = 128 * 1024  # more than about a millisecond of work leaves the loop to others
NO_HTTP: Final = "this is not a request that HTTP/1.1 allows; the connection is closed"
READS: Final = ("GET", "HEAD", "OPTIONS")

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z", re.ASCII)
ALWAYS: Final = {
    "Server": "chainfolio",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_OPEN: Final = {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "*"}
_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}
_NOT_AT_ALL = re.compile(r"\s*q\s*=\s*0(?:\.0{0,3})?\s*")
_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": ", ".join(READS),
    "Access-Control-Allow-Headers": "Authorization, X-Request-Id",
    "Access-Control-Max-Age": "86400",
}
log = structlog.stdlib.get_logger("chainfolio.api")


def edge(parts: Parts, handler: Callable[[Request], Awaitable[Answer]]) -> Callable[[Request], Awaitable[None]]:
    """What a connection calls for each request: `handler` finds the answer, here it is dressed, sent and charged."""
    name, clock, say = _namer(parts), parts.seams.clock, log.bind()
    traffic, most, dress = parts.traffic, parts.settings.limits.in_flight, _dresser(parts)

    async def shed(request: Request) -> Answer:
        """Say at once that there is too much to do: whoever waited in a queue without end would be told too late."""
        traffic.shed += 1
        raise Problem(503, "too many requests are running; try again in a moment", headers={"Retry-After": "1"})

    async def outermost(request: Request) -> None:
        began_s = clock.monotonic_s()
        request.id = name(request)
        traffic.in_flight += 1
        try:
            # Whoever asks whether this process lives is always told.
            crowded = traffic.in_flight > most and request.path.startswith("/v1/")
            answer = await _answered(request, shed if crowded else handler)
            if request.charge is not None and not 200 <= answer.status < 300:
                # Whatever is not a success costs nothing; it is given back before it is told.
                await _taken(request).void()
            coding = worth_pressing(request, answer.body)
            body = await pressed(answer.body, coding) if coding else answer.body
            head = dress(request, answer, len(body), coding)
            await request.connection.send(head, b"" if request.method == "HEAD" else body)
            if request.charge is not None:  # killed before, it has cost nothing
                _taken(request).post_soon()
        except BaseException as error:  # whoever leaves, or whatever fails: nothing was sent, so nothing is owed
            if request.charge is not None:
                _taken(request).void_soon()
            if isinstance(error, asyncio.CancelledError):
                log.info("left", request_id=request.id, method=request.method, path=_path(request))
            raise
        finally:
            traffic.in_flight -= 1
        took_s = clock.monotonic_s() - began_s
        traffic.note(request.operation, answer.status, took_s)
        _note(say, request, answer.status, len(body), took_s)

    return outermost


def _taken(request: Request) -> Charge:
    """The charge of a request, which is settled once."""
    charge, request.charge = request.charge, None
    assert charge is not None, "asked before"
    return charge


def refused(error: Exception, request: Request, envelope: str = "whole") -> Answer:
    """The answer for an error; what is our own fault is logged whole, and only named to the client."""
    problem = problem_of(error, request.id, envelope)
    if not isinstance(error, Problem) and problem.status >= 500:
        about = {"request_id": request.id, "path": _path(request), "status": problem.status}
        if problem.status == 500:
            log.error("failed", **about, exc_info=error)
        else:  # named by its kind and its words: where it came from is no news
            log.warning("failed", **about, kind=type(error).__name__, reason=str(error))
    return refusal(envelope, problem)


def unreadable() -> bytes:
    """The whole answer to what is no HTTP request; the parser's own words would quote it."""
    answer = refusal("whole", Problem(400, NO_HTTP))
    headers = {
        "Content-Type": answer.content_type, "Content-Length": str(len(answer.body)), "Cache-Control": "no-store",
        **ALWAYS, "Date": formatdate(usegmt=True), "Connection": "close",
    }  # fmt: skip
    lines = [f"HTTP/1.1 400 {_REASONS[400]}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + answer.body


async def _answered(request: Request, handler: Callable[[Request], Awaitable[Answer]]) -> Answer:
    try:
        if len(request.raw_path) > MAX_URL:
            raise Problem(414, f"the URL is longer than {MAX_URL} bytes")
        if sum([len(name) + len(value) + 4 for name, value in request.raw_headers]) > MAX_HEADERS:
            raise Problem(431, f"the headers are longer than {MAX_HEADERS} bytes")
        return await handler(request)
    except Exception as error:  # whatever it is, the client is told in our own words
        return refused(error, request)


def _namer(parts: Parts) -> Callable[[Request], str]:
    """Names for requests: their own where they bring a sane one, else a number that no other process counts from."""
    prefix, numbers = f"{parts.seams.random.getrandbits(80):020x}", itertools.count(1)

    def name(request: Request) -> str:
        given = request.headers.get("X-Request-Id")
        return given if given and _SANE_ID.match(given) else f"{prefix}{next(numbers):012x}"

    return name


def _dresser(parts: Parts) -> Callable[[Request, Answer, int, str], bytes]:
    """Writes heads of answers: status line and headers, to the empty line."""
    cors, clock, signature = parts.settings.server.cors, parts.seams.clock, parts.signature
    at_s, date = 0, ""

    def dress(request: Request, answer: Answer, length: int, coding: str) -> bytes:
        nonlocal at_s, date
        if (now_s := clock.now_us() // 1_000_000) != at_s:
            at_s, date = now_s, formatdate(now_s, usegmt=True)
        headers = {"X-Request-Id": request.id, "Date": date, "Cache-Control": "no-store", **ALWAYS, **signature}
        if answer.status != 204:
            headers["Content-Length"] = str(length)
            kind = answer.content_type
            headers["Content-Type"] = kind if kind == JSON else f"{kind}; charset=utf-8"
        if cors and request.method in READS:
            headers.update(_OPEN)
            if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
                headers.update(_PREFLIGHT)
        if coding or len(answer.body) >= COMPRESS_FROM:
            headers["Vary"] = "Accept-Encoding"
        if coding:
            headers["Content-Encoding"] = coding
        headers.update(answer.headers)
        headers.update(request.extras)
        return _head(request, answer.status, headers)

    return dress


def _head(request: Request, status: int, headers: dict[str, str]) -> bytes:
    version = request.version
    if not request.keep_alive:
        headers["Connection"] = "close"
    elif version == HttpVersion10:
        headers["Connection"] = "keep-alive"
    lines = [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join([f"HTTP/{version[0]}.{version[1]} {status} {_REASONS[status]}", *lines, "", ""])
    assert head.count("\n") == head.count("\r") == len(lines) + 2, "a header holds a line break"
    return head.encode()


def worth_pressing(request: Request, body: bytes) -> str:
    """The compression of a body that is worth it, as the client takes it; the same body is the same bytes."""
    return coding_of(request.headers.get("Accept-Encoding", "")) if len(body) >= COMPRESS_FROM else ""


async def pressed(body: bytes, coding: str) -> bytes:
    """A body, compressed."""
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


def _path(request: Request) -> str:
    """The path for the log, without the query: addresses are the caller's business, and a key may stray into it."""
    return request.path[:200]


def _note(say: Any, request: Request, status: int, length: int, took_s: float) -> None:
    who = request.principal
    caller = {"account": who.account_id, "key": who.key_id} if who else {}
    say.info(
        "request",
        request_id=request.id,
        method=request.method,
        path=_path(request),
        status=status,
        ms=round(took_s * 1000, 1),
        bytes=length,
        **caller,
    )
