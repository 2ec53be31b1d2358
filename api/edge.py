"""What every answer has, whatever it says: a request id, one line in the log, CORS, security headers, compression."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from aiohttp import web

from chainfolio.api.charge import Charge
from chainfolio.api.connection import send
from chainfolio.api.context import Answer, Parts
from chainfolio.api.errors import Problem, problem_of, refusal
from chainfolio.api.request import Request
from chainfolio.api.response_headers import ResponseHeaders, compressed, worth_compressing
from chainfolio.errors import NotFound

MAX_URL: Final = 8 * 1024
MAX_HEADERS: Final = 16 * 1024

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z", re.ASCII)
Handler = Callable[[Request], Awaitable[Answer]]
Served = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
log = structlog.stdlib.get_logger("chainfolio.api")


def edge(parts: Parts, heads: ResponseHeaders, max_body: int, handler: Handler) -> Served:
    """What a connection calls for each request: `handler` finds the answer, here it is dressed, sent and charged."""
    name, clock, logger = _namer(parts), parts.environment.clock, log.bind()
    traffic, limit = parts.traffic, parts.settings.limits.in_flight
    logs_info = logger.is_enabled_for(logging.INFO)

    async def shed(request: Request) -> Answer:
        """Say at once that there is too much to do: whoever waited in a queue without end would be told too late."""
        traffic.shed += 1
        raise Problem(503, "too many requests are running; try again in a moment", headers={"Retry-After": "1"})

    async def outermost(http: web.BaseRequest) -> web.StreamResponse:
        began_s = clock.monotonic_s()
        request = Request(http, max_body)
        request.id = name(request)
        traffic.in_flight += 1
        try:
            # Whoever asks whether this process lives is always told.
            crowded = traffic.in_flight > limit and request.path.startswith("/v1/")
            answer = await _answered(request, shed if crowded else handler)
            if request.charge is not None and not 200 <= answer.status < 300:
                # Whatever is not a success costs nothing; it is given back before it is told.
                await _charge(request).void()
            coding = worth_compressing(request, answer.body)
            body = await compressed(answer.body, coding) if coding else answer.body
            response = heads.response(request, answer, body, coding)
            await send(http, response)
            if request.charge is not None:  # killed before, it has cost nothing
                _charge(request).post_soon()
        except BaseException as error:  # whoever leaves, or whatever fails: nothing was sent, so nothing is owed
            if request.charge is not None:
                _charge(request).void_soon()
            if isinstance(error, asyncio.CancelledError):
                log.info("left", request_id=request.id, method=request.method, path=request.route)
            raise
        finally:
            traffic.in_flight -= 1
            if request.counted:
                _leave(parts.running, request.counted)
        took_s = clock.monotonic_s() - began_s
        traffic.note(request.operation, answer.status, took_s)
        if logs_info:
            _note(logger, request, answer.status, len(body), took_s)
        return response

    return outermost


def _leave(running: Counter[str], account: str) -> None:
    running[account] -= 1
    if not running[account]:
        del running[account]


def _charge(request: Request) -> Charge:
    """The charge of a request, which is settled once."""
    charge, request.charge = request.charge, None
    assert charge is not None, "asked before"
    return charge


def error_answer(error: Exception, request: Request, envelope: str = "whole") -> Answer:
    """The answer for an error; what is our own fault is logged whole, and only named to the client."""
    problem = problem_of(error, request.id, envelope)
    if not isinstance(error, Problem) and problem.status >= 500:
        context = {"request_id": request.id, "path": request.route, "status": problem.status}
        if problem.status == 500:
            log.error("failed", **context, exc_info=error)
        else:  # named by its kind and its words: where it came from is no news
            log.warning("failed", **context, kind=type(error).__name__, reason=str(error))
    elif isinstance(error, NotFound) and error.remedy:
        log.warning("not found", request_id=request.id, path=request.route, reason=str(error))
    return refusal(envelope, problem)


async def _answered(request: Request, handler: Handler) -> Answer:
    try:
        if len(request.raw_path) > MAX_URL:
            raise Problem(414, f"the URL is longer than {MAX_URL} bytes")
        if request.head_bytes > MAX_HEADERS:
            raise Problem(431, f"the headers are longer than {MAX_HEADERS} bytes")
        return await handler(request)
    except Exception as error:  # whatever it is, the client is told in our own words
        return error_answer(error, request)


def _namer(parts: Parts) -> Callable[[Request], str]:
    """Names for requests: their own where they bring a sane one, else a number that no other process counts from."""
    prefix, numbers = f"{parts.environment.random.getrandbits(80):020x}", itertools.count(1)

    def name(request: Request) -> str:
        request_id = request.headers.get("X-Request-Id")
        return request_id if request_id and _SANE_ID.match(request_id) else f"{prefix}{next(numbers):012x}"

    return name


def _note(logger: Any, request: Request, status: int, length: int, took_s: float) -> None:
    principal = request.principal
    caller = {"account": principal.account_id, "key": principal.key_id} if principal else {}
    logger.info(
        "request",
        request_id=request.id,
        method=request.method,
        path=request.route,
        status=status,
        ms=round(took_s * 1000, 1),
        bytes=length,
        **caller,
    )
