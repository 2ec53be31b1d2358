"""The edge: sends every answer with request id, headers and compression, logs and charges it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from aiohttp import web

from chainfolio.api.charge import Charge
from chainfolio.api.connection import send
from chainfolio.api.context import Answer, Parts
from chainfolio.api.errors import Problem, problem_of, refusal
from chainfolio.api.request import Request
from chainfolio.api.response_headers import ResponseHeaders, compressed, worth_compressing
from chainfolio.errors import NotFound
from chainfolio.spans import span

MAX_URL: Final = 8 * 1024
MAX_HEADERS: Final = 16 * 1024

_VALID_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z", re.ASCII)
Handler = Callable[[Request], Awaitable[Answer]]
HttpHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
log = structlog.stdlib.get_logger("chainfolio.api")


def edge(parts: Parts, response_headers: ResponseHeaders, max_body: int, handler: Handler) -> HttpHandler:
    """Return the handler of a connection's requests, which sends, charges and logs `handler`'s answer.

    If too many requests run, the answer is a 503 Problem instead, but not for health checks. Credits are given back
    unless a 2xx answer was sent, also if the client left; an answer that is paid first has begun to be sent.
    """
    name, clock, logger = _namer(parts), parts.environment.clock, log.bind()
    traffic, limit = parts.traffic, parts.settings.limits.in_flight
    logs_info = logger.is_enabled_for(logging.INFO)

    async def shed(request: Request) -> Answer:
        """Refuse a request at once with a 503 Problem, instead of queueing it without limit."""
        traffic.shed += 1
        raise Problem(503, "too many requests are running; try again in a moment", headers={"Retry-After": "1"})

    async def outermost(http: web.BaseRequest) -> web.StreamResponse:
        began_s = clock.monotonic_s()
        request = Request(http, max_body)
        request.id = name(request)
        traffic.in_flight += 1
        try:
            # Health checks are never refused.
            crowded = traffic.in_flight > limit and request.path.startswith("/v1/")
            with span("request") as current:
                answer = await _answered(request, shed if crowded else handler)
                current.set_attribute("operation", request.operation)
                current.set_attribute("status", answer.status)
            if request.charge is not None and not 200 <= answer.status < 300:
                # Only successes cost credits; they are given back before the answer is sent.
                await _charge(request).void()
            coding = worth_compressing(request, answer.body)
            body = await compressed(answer.body, coding) if coding else answer.body
            response = response_headers.response(request, answer, body, coding)
            with _closing(answer):
                _count_stream(parts, request, answer, clock.monotonic_s() - began_s)
                _pay_first(http, request, answer)
                await send(http, response, answer.stream)
            if request.charge is not None:  # if the process is killed before this line, the request is free
                _charge(request).post_soon()
        except BaseException as error:  # also cancellation by a disconnect: the answer was not sent, so it is free
            if request.charge is not None:
                _charge(request).void_soon()
            if isinstance(error, asyncio.CancelledError):
                log.info("left", request_id=request.id, method=request.method, path=request.route)
            raise
        finally:
            _count_out(parts, request)
        took_s = clock.monotonic_s() - began_s
        if answer.stream is None:
            traffic.note(request.operation, answer.status, took_s)
        if logs_info:
            _note(logger, request, answer.status, response.content_length or 0, took_s)
        return response

    return outermost


def _closing(answer: Answer) -> contextlib.AbstractContextManager[object]:
    """Return a context manager that closes the file or the stream of an answer, if it has one."""
    if answer.stream is not None:
        return contextlib.closing(answer.stream)
    return contextlib.nullcontext() if answer.file is None else answer.file


def _count_stream(parts: Parts, request: Request, answer: Answer, took_s: float) -> None:
    """Count a stream as answered when it begins, and no longer as running: it has bounds of its own.

    Nothing happens for other answers.
    """
    if answer.stream is not None:
        _count_out(parts, request)
        parts.traffic.note(request.operation, answer.status, took_s)


def _count_out(parts: Parts, request: Request) -> None:
    """Count a request no longer among those that run; a second call does nothing."""
    if request.is_running:
        request.is_running = False
        parts.traffic.in_flight -= 1
        if account := request.counted:
            parts.running[account] -= 1
            if not parts.running[account]:
                del parts.running[account]


def _pay_first(http: web.BaseRequest, request: Request, answer: Answer) -> None:
    """Take the credits of an answer that is paid when it begins; nothing happens if the client has left."""
    if answer.is_paid_first and request.charge is not None and http.transport is not None:
        _charge(request).post_soon()


def _charge(request: Request) -> Charge:
    """Remove the charge from the request and return it, so that it is settled only once."""
    charge, request.charge = request.charge, None
    assert charge is not None, "checked by the caller"
    return charge


def error_answer(error: Exception, request: Request, envelope: str = "whole") -> Answer:
    """Return the answer for an error; log server errors, and a NotFound that the operator can remedy.

    A 500 is logged with its traceback; its answer has only the id of the incident.
    """
    problem = problem_of(error, request.id, envelope)
    if not isinstance(error, Problem) and problem.status >= 500:
        context = {"request_id": request.id, "path": request.route, "status": problem.status}
        if problem.status == 500:
            log.error("failed", **context, exc_info=error)
        else:  # an expected failure: its traceback would tell nothing new
            log.warning("failed", **context, kind=type(error).__name__, reason=str(error))
    elif isinstance(error, NotFound) and error.remedy:
        log.warning("not found", request_id=request.id, path=request.route, reason=str(error))
    return refusal(envelope, problem)


async def _answered(request: Request, handler: Handler) -> Answer:
    """Return the handler's answer, or the error's: no error is raised."""
    try:
        if len(request.raw_path) > MAX_URL:
            raise Problem(414, f"the URL is longer than {MAX_URL} bytes")
        if request.head_bytes > MAX_HEADERS:
            raise Problem(431, f"the headers are longer than {MAX_HEADERS} bytes")
        return await handler(request)
    except Exception as error:  # every error gets an answer in our own format
        return error_answer(error, request)


def _namer(parts: Parts) -> Callable[[Request], str]:
    """Return a function that returns a request's id: its valid `X-Request-Id`, else a new unique one."""
    prefix, numbers = f"{parts.environment.random.getrandbits(80):020x}", itertools.count(1)

    def name(request: Request) -> str:
        request_id = request.headers.get("X-Request-Id")
        return request_id if request_id and _VALID_ID.match(request_id) else f"{prefix}{next(numbers):012x}"

    return name


def _note(logger: structlog.stdlib.BoundLogger, request: Request, status: int, length: int, took_s: float) -> None:
    """Log a request: route (no path values), status, time and bytes, and the caller if a key was valid."""
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
