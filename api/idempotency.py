"""`Idempotency-Key`: a change that is asked for twice is made once, answered alike and paid once."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Final

from api.context import Answer, Context
from api.errors import Flaw, Problem, invalid, problem_of, refusal
from api.schema import content
from storage.state import idempotency
from storage.state.database import Taken
from storage.state.idempotency import Claim, Kept

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
WRITES: Final = ("POST", "PATCH", "DELETE")
_SANE = re.compile(r"[\x21-\x7e]{1,255}\Z")


def idempotency_key(context: Context) -> str | None:
    """The key of a request that changes something, where it has one; Problem where it cannot be one."""
    if context.http.method not in WRITES:
        return None
    given = context.http.headers.getall(HEADER, [])
    if not given:
        return None
    if len(given) > 1 or not _SANE.match(given[0]):
        words = f"`{HEADER}` is given once, with 1 to 255 printable characters"
        raise invalid("headers", [Flaw(words, [HEADER])])
    return given[0]


async def claimed(context: Context, name: str, work: Callable[[], Awaitable[Answer]]) -> Answer:
    """What was answered to this key before; else what the work answers, kept for whoever asks again."""
    found = await _claim(context, name)
    if isinstance(found, Kept):
        context.headers[REPLAYED] = "true"
        return Answer(found.body, found.status, found.content_type)
    context.claim = found
    try:
        answer = await work()
    except Exception as error:  # a refusal is kept, a failure frees the key: both go on
        answer = await _refused(context, found, error)
    except asyncio.CancelledError:
        await asyncio.shield(_free(context, found))
        raise
    if context.claim is not None:  # else it was kept in the transaction that made the change
        await _keep(context, found, answer)
    return answer


async def _claim(context: Context, name: str) -> Claim | Kept:
    account_id, now_us = context.principal.account_id, context.parts.seams.clock.now_us()
    stale_us = context.parts.settings.limits.hold_s * 1_000_000
    mark = await _fingerprint(context)
    try:
        found = await context.parts.state.run(
            lambda tx: idempotency.claim(tx, account_id, name, mark, now_us, stale_us)
        )
    except Taken:  # two at once: the other one has it
        found = "running"
    if found == "running":
        raise Problem(
            409,
            f"the first request with this {HEADER} is still running",
            code="IDEMPOTENCY_KEY_IN_USE",
            headers={"Retry-After": "1"},
        )
    if found == "another":
        raise Problem(422, f"this {HEADER} was used for another request", code="IDEMPOTENCY_KEY_REUSED")
    assert not isinstance(found, str), "one of the two"
    return found


async def _fingerprint(context: Context) -> bytes:
    request = context.http
    parts = (request.method, request.raw_path, ",".join(request.headers.getall("X-Delegate-For", [])))
    return hashlib.sha256("\n".join(parts).encode() + b"\n" + await content(context)).digest()


async def _refused(context: Context, found: Claim, error: Exception) -> Answer:
    """A refusal is an answer to keep; a failure, or a lack of credits, is none: trying again may go better."""
    problem = problem_of(error, context.request_id)
    if problem.status >= 500 or problem.status in (402, 429):
        await _free(context, found)
        raise error
    return refusal(context.route.envelope, problem)


async def _keep(context: Context, found: Claim, answer: Answer) -> None:
    kept = Kept(answer.status, answer.content_type, answer.body)
    await context.parts.state.run(lambda tx: idempotency.keep(tx, found, kept))


async def _free(context: Context, found: Claim) -> None:
    context.claim = None
    await context.parts.state.run(lambda tx: idempotency.free(tx, found))
