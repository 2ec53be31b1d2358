"""What every answer has, whatever it says: a request id, one line in the log, CORS, security headers, compression."""

from __future__ import annotations

import asyncio
import itertools
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.typedefs import Handler, Middleware
from backports import zstd

from api.charge import CHARGE
from api.context import JSON, Answer, Parts
from api.errors import Problem, problem_of, refusal

REQUEST_ID: Final = web.RequestKey("request_id", str)
CALLER: Final = web.RequestKey("caller", dict)
OPERATION: Final = web.RequestKey("operation", str)
MAX_URL: Final = 8 * 1024
MAX_HEADERS: Final = 16 * 1024
COMPRESS_FROM: Final = 1024
COMPRESS_ASIDE: Final = 128 * 1024  # more than about a millisecond of work leaves the loop to others
READS: Final = ("GET", "HEAD", "OPTIONS")

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z", re.ASCII)
ALWAYS: Final = {
    "Server": "chainfolio",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_ALWAYS_OPEN: Final = {**ALWAYS, "Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "*"}
_NOT_AT_ALL = re.compile(r"\s*q\s*=\s*0(?:\.0{0,3})?\s*")
_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": ", ".join(READS),
    "Access-Control-Allow-Headers": "Authorization, X-Request-Id",
    "Access-Control-Max-Age": "86400",
}
log = structlog.stdlib.get_logger("chainfolio.api")


def edge(parts: Parts) -> Middleware:
    """The outermost middleware."""
    name, clock, cors, say = _namer(parts), parts.seams.clock, parts.settings.server.cors, log.bind()

    traffic, most = parts.traffic, parts.settings.limits.in_flight

    async def shed(request: web.Request) -> web.StreamResponse:
        """Say at once that there is too much to do: whoever waited in a queue without end would be told too late."""
        traffic.shed += 1
        raise Problem(503, "too many requests are running; try again in a moment", headers={"Retry-After": "1"})

    @web.middleware
    async def outermost(request: web.Request, handler: Handler) -> web.StreamResponse:
        began_s = clock.monotonic_s()
        request[REQUEST_ID] = name(request)
        request[CALLER] = {}
        traffic.in_flight += 1
        try:
            # Whoever asks whether this process lives is always told.
            crowded = traffic.in_flight > most and request.path.startswith("/v1/")
            response = await _answered(request, shed if crowded else handler)
            await _refund(request, response)
            _dress(request, response, cors=cors)
            await _compress(request, response)
            await _send(request, response)
        except BaseException as error:  # whoever leaves, or whatever fails: nothing was sent, so nothing is owed
            if (charge := request.get(CHARGE)) is not None:
                charge.void_soon()
            if isinstance(error, asyncio.CancelledError):
                log.info("left", request_id=request[REQUEST_ID], method=request.method, path=_path(request))
            raise
        finally:
            traffic.in_flight -= 1
        took_s = clock.monotonic_s() - began_s
        traffic.note(request.get(OPERATION, "none"), response.status, took_s)
        _note(say, request, response, took_s)
        return response

    return outermost


async def _refund(request: web.Request, response: web.StreamResponse) -> None:
    """Whatever is not a success costs nothing; it is given back before it is told."""
    charge = request.get(CHARGE)
    if charge is not None and not 200 <= response.status < 300:
        del request[CHARGE]
        await charge.void()


async def _send(request: web.Request, response: web.StreamResponse) -> None:
    """Send the answer, and charge for it once all of it has left this process: killed before, it has cost nothing."""
    writer = await response.prepare(request)
    await response.write_eof()
    charge = request.get(CHARGE)
    if charge is None:
        return
    assert writer is not None, "nobody has sent it before"
    await _left(request, writer)
    del request[CHARGE]
    charge.post_soon()


async def _left(request: web.Request, writer: AbstractStreamWriter) -> None:
    """Wait until the system has taken every byte; from then on they travel without us."""
    while (transport := request.transport) is not None and not transport.is_closing():
        if not transport.get_write_buffer_size():
            return
        await asyncio.sleep(0)  # some loops write at the end of a round, and all is gone
        if not transport.get_write_buffer_size() or transport.is_closing():
            continue
        # With no room allowed for what waits, to drain is to be woken when nothing does: at once, so that a client
        # that has all and leaves is not taken for one that left before.
        transport.set_write_buffer_limits(0)
        await writer.drain()
        if request.transport is transport and not transport.is_closing():
            transport.set_write_buffer_limits()
    raise ConnectionResetError("the client has gone")


def sent(answer: Answer) -> web.Response:
    """An answer as the web server takes it."""
    if answer.status == 204:
        return web.Response(status=204, headers=answer.headers)
    kind = answer.content_type if answer.content_type == JSON else f"{answer.content_type}; charset=utf-8"
    return web.Response(body=answer.body, status=answer.status, headers={"Content-Type": kind, **answer.headers})


def refused(error: Exception, request: web.Request, envelope: str = "whole") -> web.Response:
    """The answer for an error; what is our own fault is logged whole, and only named to the client."""
    problem = problem_of(error, request[REQUEST_ID], envelope)
    if not isinstance(error, Problem) and problem.status >= 500:
        about = {"request_id": request[REQUEST_ID], "path": _path(request), "status": problem.status}
        if problem.status == 500:
            log.error("failed", **about, exc_info=error)
        else:  # named by its kind and its words: where it came from is no news
            log.warning("failed", **about, kind=type(error).__name__, reason=str(error))
    return sent(refusal(envelope, problem))


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        if len(request.raw_path) > MAX_URL:
            raise Problem(414, f"the URL is longer than {MAX_URL} bytes")
        if sum(len(name) + len(value) + 4 for name, value in request.raw_headers) > MAX_HEADERS:
            raise Problem(431, f"the headers are longer than {MAX_HEADERS} bytes")
        return await handler(request)
    except web.HTTPMethodNotAllowed as error:
        return _other_method(request, error)
    except web.HTTPException as error:
        return refused(_of_server(error), request)
    except Exception as error:  # whatever it is, the client is told in our own words
        return refused(error, request)


def _other_method(request: web.Request, error: web.HTTPMethodNotAllowed) -> web.Response:
    """OPTIONS is answered for every path there is; other methods than the path has are refused."""
    allow = ", ".join(sorted({*error.allowed_methods, "OPTIONS"}))
    if request.method == "OPTIONS":
        return web.Response(status=204, headers={"Allow": allow})
    return refused(Problem(405, f"this path takes {allow}", headers={"Allow": allow}), request)


def _of_server(error: web.HTTPException) -> Problem:
    if error.status == 404:
        return Problem(404, "there is nothing at this path; /docs lists what there is")
    if error.status == 413:
        return Problem(413, "the body is too long")
    return Problem(error.status, error.reason, error.reason)


def _namer(parts: Parts) -> Callable[[web.Request], str]:
    """Names for requests: their own where they bring a sane one, else a number that no other process counts from."""
    prefix, numbers = f"{parts.seams.random.getrandbits(80):020x}", itertools.count(1)

    def name(request: web.Request) -> str:
        given = request.headers.get("X-Request-Id")
        return given if given and _SANE_ID.match(given) else f"{prefix}{next(numbers):012x}"

    return name


def _dress(request: web.Request, response: web.StreamResponse, *, cors: bool) -> None:
    headers = response.headers
    headers["X-Request-Id"] = request[REQUEST_ID]
    if "Cache-Control" not in headers:
        headers["Cache-Control"] = "no-store"
    if not (cors and request.method in READS):
        headers.update(ALWAYS)
        return
    headers.update(_ALWAYS_OPEN)
    if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
        headers.update(_PREFLIGHT)


async def _compress(request: web.Request, response: web.StreamResponse) -> None:
    """Compress a body that is worth it, as the client takes it; the same body is the same bytes."""
    if not isinstance(response, web.Response) or not isinstance(response.body, bytes):
        return
    body = response.body
    if len(body) < COMPRESS_FROM:
        return
    response.headers["Vary"] = "Accept-Encoding"
    coding = coding_of(request.headers.get("Accept-Encoding", ""))
    if not coding:
        return
    press = _PRESSES[coding]
    response.body = press(body) if len(body) < COMPRESS_ASIDE else await asyncio.to_thread(press, body)
    response.headers["Content-Encoding"] = coding


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


def _path(request: web.Request) -> str:
    """The path for the log, without the query: addresses are the caller's business, and a key may stray into it."""
    return request.path[:200]


def _note(say: Any, request: web.Request, response: web.StreamResponse, took_s: float) -> None:
    say.info(
        "request",
        request_id=request[REQUEST_ID],
        method=request.method,
        path=_path(request),
        status=response.status,
        ms=round(took_s * 1000, 1),
        bytes=len(response.body) if isinstance(response, web.Response) and isinstance(response.body, bytes) else 0,
        **request[CALLER],
    )
