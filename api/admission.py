"""The step that lets a request in: its rate, then what is wrong with it, then its credits. A read holds them until it
is answered; a change takes them in the transaction that makes it.

A request's flaws are found before its rate is counted and told after it, so that rate and credits take one step in
the store: whoever comes too often learns only that. Where the store has to be asked whether the account may have what
it asks for, that comes after the rate, and the credits are reserved in a step of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Final

from chainfolio.api import schema
from chainfolio.api.auth import caller
from chainfolio.api.changes import changed
from chainfolio.api.charge import Charge, insufficient_credits
from chainfolio.api.context import Answer, Context, Places, Proceed, Step
from chainfolio.api.entitlement import missing
from chainfolio.api.errors import Problem
from chainfolio.api.idempotency import asked_once
from chainfolio.api.router import AT_BLOCK
from chainfolio.errors import BadRequest, NotSupported
from chainfolio.storage.state.meter import WINDOW_US, Admission, AdmissionRequest
from chainfolio.storage.state.refusals import Refusal

WINDOW_S: Final = WINDOW_US // 1_000_000


async def admit(context: Context, proceed: Proceed) -> Answer:
    """Let the request in, or refuse it; what a read reserved is the edge's to settle."""
    crowded = _crowded(context)
    # Where nothing long is to be read, and nothing costly to be said, rate and credits are one step.
    is_first = crowded or context.http.has_body or schema.has_unknown(context)
    first = await _admit_request(context) if is_first else None
    if crowded:
        raise crowded
    problem, cost, admitted = await _retried_admission(context, first)
    context.headers.update(rate_headers(context, first or admitted))
    if not admitted.is_allowed:
        raise _rate_limited(admitted)
    if problem:
        raise problem
    if context.route.allow is not None:
        await context.route.allow(context, **context.arguments)
    if context.route.changes:
        context.cost = cost
        return await changed(context, proceed, admitted.available or 0)
    if context.route.allow is not None:
        cost = context.route.cost * context.units  # without what `allow` found to be unanswerable
        admitted = await _admitted(context, cost, rate=False)
    _reserved(context, admitted, cost)
    async with _queue_place(context):
        return await proceed(context)


async def _admit_request(context: Context) -> Admission:
    """Count the request in its rate before anything of it is read but its head; 429 where it comes too often."""
    while (admitted := await _admitted(context, 0, rate=True)).is_stale:
        await _known_anew(context)
    context.headers.update(rate_headers(context, admitted))
    if not admitted.is_allowed:
        raise _rate_limited(admitted)
    return admitted


async def _known_anew(context: Context) -> None:
    context.parts.state.clear_cached_keys()
    context.http.principal = await caller(context)


async def _retried_admission(context: Context, first: Admission | None) -> tuple[Exception | None, int, Admission]:
    """What is wrong with the request, what it costs, and whether it may come in, as of one state of keys and grants."""
    while True:
        problem = await _field_error(context)
        cost = 0 if problem else context.route.cost * context.units
        is_later = context.route.allow is not None and not context.route.changes
        if first is not None and (problem or is_later or not cost):
            return problem, cost, first
        admitted = await _admitted(context, 0 if is_later else cost, rate=first is None, current=True)
        if not admitted.is_stale:
            return problem, cost, admitted
        await _known_anew(context)


async def _field_error(context: Context) -> Exception | None:
    """What will be refused, if the rate allows to say so."""
    if problem := missing(context.route, context.principal, context.parts.environment.clock.now_us()):
        return problem
    try:
        await schema.fill(context)
        context.asked = await asked_once(context) if context.route.changes else None
        if context.route.check is not None:
            context.route.check(context, **context.arguments)
    except (Problem, Refusal, BadRequest, NotSupported) as field_error:
        return field_error
    return None


def _admitted(context: Context, cost: int, *, rate: bool, current: bool = False) -> Awaitable[Admission]:
    limits = context.parts.settings.limits
    limit = limits.at_block_per_minute if context.route.bucket == AT_BLOCK else limits.per_minute
    principal = context.principal
    request = AdmissionRequest(
        principal.account_id,
        principal.key_id,
        context.route.bucket,
        limit if rate else 0,
        cost,
        context.request_id,
        principal.as_of if rate or current else None,
        hold=not context.route.changes,
    )
    return context.parts.state.meter.admit(request)


def _reserved(context: Context, admitted: Admission, cost: int) -> None:
    """Put the charge on the request, or refuse for want of credits."""
    if not cost:
        return
    if admitted.reservation is None:
        raise insufficient_credits(cost, admitted.available or 0)
    context.http.charge = Charge(context.parts.state.meter, admitted.reservation)


def rate_headers(context: Context, admitted: Admission) -> dict[str, str]:
    """The rate as clients of this interface read it, and as the IETF's draft words it."""
    bucket, now_us = context.route.bucket, context.parts.environment.clock.now_us()
    left_us = max(0, admitted.reset_us - admitted.now_us)
    left_s = -(-left_us // 1_000_000)
    return {
        "X-RateLimit-Limit": str(admitted.limit),
        "X-RateLimit-Remaining": str(admitted.remaining),
        "X-RateLimit-Reset": str(-(-(now_us + left_us) // 1_000_000)),
        "RateLimit-Policy": f'"{bucket}";q={admitted.limit};w={WINDOW_S}',
        "RateLimit": f'"{bucket}";r={admitted.remaining};t={left_s}',
    }


def _rate_limited(admitted: Admission) -> Problem:
    wait_s = max(1, -(-(admitted.reset_us - admitted.now_us) // 1_000_000))
    return Problem(
        429,
        f"at most {admitted.limit} requests in any {WINDOW_S} seconds; try again in {wait_s} s",
        extras={"retryAfter": wait_s, "retry_after": wait_s},
        headers={"Retry-After": str(wait_s)},
    )


def _too_many(reason: str) -> Problem:
    """The refusal of one request more than may run at once: there is room as soon as another one is answered."""
    return Problem(
        429,
        f"{reason}; send the next when one is answered",
        extras={"retryAfter": 1, "retry_after": 1},
        headers={"Retry-After": "1"},
    )


# --- how many requests of an account run at once ---------------------------------------------------------------------


def _crowded(context: Context) -> Problem | None:
    """The refusal where too many requests of the account run; else the request is one more, until it is answered."""
    account, limit = context.principal.account_id, context.parts.settings.limits.in_flight_per_account
    running = context.parts.running
    if running[account] >= limit:
        return _too_many(f"{limit} requests of this account are running")
    running[account] += 1
    context.http.counted = account
    return None


# --- who waits for fresh data ----------------------------------------------------------------------------------------


def _waits(context: Context) -> bool:
    return getattr(context.arguments.get("query"), "wait_for_sync", False)


@asynccontextmanager
async def _queue_place(context: Context) -> AsyncIterator[None]:
    """Hold one of the key's places for requests that wait for a read, which may take as long as a node takes. Where all
    are taken, wait for one; a client that leaves and a request whose time is over give their turn to the next."""
    if not _waits(context):
        yield
        return
    limits, waiting = context.parts.settings.limits, context.parts.waiting
    key, limit = context.principal.key_id, limits.waiting_per_key + limits.queued_per_key
    queue = waiting.setdefault(key, Places(asyncio.Semaphore(limits.waiting_per_key)))
    if queue.requests >= limit:
        raise _too_many(f"{limit} requests of this key are waiting for fresh data")
    queue.requests += 1
    try:
        async with queue.free:
            yield
    finally:
        queue.requests -= 1
        if not queue.requests:
            del waiting[key]


ADMIT = Step(
    "admit",
    admit,
    refuses={
        400: "A parameter is unknown, missing, repeated or malformed.",
        402: "The account has too few credits.",
        429: "Too many requests in a minute, or too many of this key that wait for fresh data or for a place to do so.",
        503: "The store cannot answer at the moment.",
    },
    headers={
        "X-RateLimit-Limit": "Requests that this key may send in any minute.",
        "X-RateLimit-Remaining": "How many of them are left now.",
        "X-RateLimit-Reset": "When the next place becomes free, in seconds since 1970.",
        "RateLimit-Policy": "The same limit as the IETF's draft words it.",
        "RateLimit": "What is left, and for how many seconds, as the IETF's draft words it.",
    },
)
