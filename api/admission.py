"""The admission step of the pipeline: rate limit, then validation, then credits.

A read reserves its credits until the answer is sent; a change pays them in its own transaction. Requests are validated
before the rate limit is counted, so that rate and credits take one step in the store, but a validation error is
reported only if the rate limit allows the request. If a route has an `allow` check, which reads the store, it runs
after the rate limit, and credits are then reserved in a second step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Final

from chainfolio.api import schema
from chainfolio.api.auth import caller
from chainfolio.api.changes import answer_change
from chainfolio.api.charge import Charge
from chainfolio.api.context import Answer, Context, Proceed, Step, WaitSlots
from chainfolio.api.entitlement import missing
from chainfolio.api.errors import Problem, insufficient_credits
from chainfolio.api.idempotency import read_keyed_request
from chainfolio.api.router import AT_BLOCK
from chainfolio.errors import BadRequest, NotSupported
from chainfolio.storage.state.meter_transaction import WINDOW_US, Admission, AdmissionRequest
from chainfolio.storage.state.refusals import Refusal

WINDOW_S: Final = WINDOW_US // 1_000_000


async def admit(context: Context, proceed: Proceed) -> Answer:
    """Admit the request and return the answer of the next steps.

    The credits that a read reserves are settled by `edge`. Every refusal is raised: rate limit, entitlement,
    validation or credits. Headers of the rate limit are added to the answer.
    """
    crowded = _count_running(context)
    # Without a body to read and without a costly error message, rate and credits are one step.
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
        return await answer_change(context, proceed, admitted.available or 0)
    if context.route.allow is not None:
        cost = context.route.cost * context.units  # without what `allow` found to be unanswerable
        admitted = await _request_admission(context, cost, rate=False)
    _attach_charge(context, admitted, cost)
    async with _queue_place(context):
        return await proceed(context)


async def _admit_request(context: Context) -> Admission:
    """Count the request in its rate limit before its body is read; raise a 429 Problem above it."""
    while (admitted := await _request_admission(context, 0, rate=True)).is_stale:
        await _reload_caller(context)
    context.headers.update(rate_headers(context, admitted))
    if not admitted.is_allowed:
        raise _rate_limited(admitted)
    return admitted


async def _reload_caller(context: Context) -> None:
    context.parts.state.clear_cached_keys()
    context.http.principal = await caller(context)


async def _retried_admission(context: Context, first: Admission | None) -> tuple[Exception | None, int, Admission]:
    """Return the request's error or None, its cost in credits and its admission.

    All are of one state of keys and grants: if accounts changed meanwhile, the caller is read again and all is
    repeated. `first` is an admission that has already counted the rate limit, or None.
    """
    while True:
        problem = await _field_error(context)
        cost = 0 if problem else context.route.cost * context.units
        is_later = context.route.allow is not None and not context.route.changes
        if first is not None and (problem or is_later or not cost):
            return problem, cost, first
        admitted = await _request_admission(context, 0 if is_later else cost, rate=first is None, current=True)
        if not admitted.is_stale:
            return problem, cost, admitted
        await _reload_caller(context)


async def _field_error(context: Context) -> Exception | None:
    """Read and check the arguments; return the error to raise once the rate limit allows it, or None."""
    if problem := missing(context.route, context.principal, context.parts.environment.clock.now_us()):
        return problem
    try:
        await schema.fill(context)
        context.keyed_request = await read_keyed_request(context) if context.route.changes else None
        if context.route.check is not None:
            context.route.check(context, **context.arguments)
    except (Problem, Refusal, BadRequest, NotSupported) as field_error:
        return field_error
    return None


def _request_admission(context: Context, cost: int, *, rate: bool, current: bool = False) -> Awaitable[Admission]:
    """Ask the meter to admit a request, and to reserve `cost` credits for it.

    Args:
        rate: Count it against the rate limit.
        current: Refuse it as stale if accounts changed since the caller's key was read; `rate` implies it.
    """
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
        rated_id=principal.rated_id,
    )
    return context.parts.state.meter.admit(request)


def _attach_charge(context: Context, admitted: Admission, cost: int) -> None:
    """Attach the reserved credits to the request; raise a 402 Problem if there are too few."""
    if not cost:
        return
    if admitted.reservation is None:
        raise insufficient_credits(cost, admitted.available or 0)
    context.http.charge = Charge(context.parts.state.meter, admitted.reservation)


def rate_headers(context: Context, admitted: Admission) -> dict[str, str]:
    """Return the rate limit as `X-RateLimit-…` headers and as the headers of the IETF draft.

    Times are whole seconds, rounded up: Unix time in the former, the rest of the window in the latter.
    """
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
    return limited(f"at most {admitted.limit} requests in any {WINDOW_S} seconds; try again in {wait_s} s", wait_s)


def _too_many(reason: str) -> Problem:
    """Return the 429 for too many concurrent requests; the client can retry when one of them is answered."""
    return limited(f"{reason}; send the next when one is answered", 1)


def limited(message: str, wait_s: int) -> Problem:
    """Return a 429 Problem that says in how many seconds a retry may succeed."""
    extras = {"retryAfter": wait_s, "retry_after": wait_s}
    return Problem(429, message, extras=extras, headers={"Retry-After": str(wait_s)})


# --- concurrent requests of one account ------------------------------------------------------------------------------


def _count_running(context: Context) -> Problem | None:
    """Count the request among the running ones of its account and return None, or a 429 if too many run."""
    account, limit = context.principal.account_id, context.parts.settings.limits.in_flight_per_account
    running = context.parts.running
    if running[account] >= limit:
        return _too_many(f"{limit} requests of this account are running")
    running[account] += 1
    context.http.counted = account
    return None


# --- requests that wait for fresh data -------------------------------------------------------------------------------


def _waits(context: Context) -> bool:
    return getattr(context.arguments.get("query"), "wait_for_sync", False)


@asynccontextmanager
async def _queue_place(context: Context) -> AsyncIterator[None]:
    """Hold one of the key's slots for requests that wait for fresh data, or wait until one is free.

    Other requests need no slot. Raises a 429 Problem if the queue of the key is full.
    """
    if not _waits(context):
        yield
        return
    limits, waiting = context.parts.settings.limits, context.parts.waiting
    key, limit = context.principal.key_id, limits.waiting_per_key + limits.queued_per_key
    queue = waiting.setdefault(key, WaitSlots(asyncio.Semaphore(limits.waiting_per_key)))
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
        429: "Too many requests in a minute, or too many requests of this key are waiting for fresh data.",
        503: "The store cannot answer at the moment.",
    },
    headers={
        "X-RateLimit-Limit": "Requests that this key may send in any minute.",
        "X-RateLimit-Remaining": "Requests that this key may still send now.",
        "X-RateLimit-Reset": "When the next request becomes possible, in Unix seconds.",
        "RateLimit-Policy": "The same limit in the form of the IETF draft.",
        "RateLimit": "The remaining requests and the seconds until the reset, in the form of the IETF draft.",
    },
)
