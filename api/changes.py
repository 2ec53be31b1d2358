"""A change: what it does, what it costs and the answer to it are one transaction, so that none of them is there without
the others, whoever leaves and whatever is killed. A refusal changes nothing and costs nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from api.charge import insufficient_credits
from api.context import Answer, Context, Proceed, encoded
from api.errors import problem_of, refusal
from api.idempotency import replayed, reused
from chainfolio.errors import Busy
from chainfolio.supervisor import described
from storage.state import idempotency, ledger
from storage.state.database import Transaction, UniqueViolation
from storage.state.idempotency import Kept, Reused
from storage.state.ledger import Short

log = structlog.stdlib.get_logger("chainfolio.api")
TRIES: Final = 4
KEPT_BYTES: Final = 4096  # of an answer that can be made again
Make = Callable[[Transaction], Answer]
Look = Callable[[Transaction], object]


async def change(context: Context, work: Look, status: int = 200, again: Look | None = None) -> Answer:
    """Do the work, take what it costs, and keep the answer that its result is.

    `again` looks up what a later request with the same key is told, where the answer is too long to be kept.
    """
    meter = context.parts.state.meter
    for _ in range(TRIES):
        bill = meter.bill(context.principal.account_id, context.principal.key_id, context.cost, context.request_id)

        def made(tx: Transaction, bill: ledger.Bill = bill) -> Answer:
            ledger.check_affords(tx, bill)
            result = work(tx)
            meter.pay(tx, bill)
            return Answer(b"", status) if status == 204 else encoded(result, status)

        try:
            found = await _remembered(context, made, again)
        except UniqueViolation:  # the same request has just been answered elsewhere
            continue
        context.made = True
        if isinstance(found, Kept):
            return replayed(context, found)
        meter.billed(bill)
        return found
    raise Busy("state", "the same change is being made elsewhere", remedy="try again")


async def afterwards(work: Awaitable[object]) -> None:
    """Do what follows a change that is paid for; a failure is logged, for the answer is due all the same."""
    try:
        await work
    except Exception as error:  # whatever it is: it takes nothing of the change back
        log.warning("not done after a change", reason=described(error))


async def changed(context: Context, proceed: Proceed, available: int) -> Answer:
    """The answer to a change that was let in: what its key was answered before, else what the next steps answer.

    `available` are the credits that the account had when it was let in.
    """
    if context.asked is None:
        return await _afforded(context, proceed, available)
    found = await _before(context)
    if found is not None and found.body is not None:
        return replayed(context, found)
    try:
        return await _afforded(context, proceed, available if found is None else context.cost)
    except Exception as error:  # a refusal is an answer to keep; a failure is none, for trying again may go better
        problem = problem_of(error, context.request_id)
        if context.made or problem.status >= 500 or problem.status in (402, 429):
            raise
        answer = refusal(context.route.envelope, problem)
    try:
        kept = await _remembered(context, lambda _: answer)
    except UniqueViolation:
        return answer
    return replayed(context, kept) if isinstance(kept, Kept) else kept


async def _afforded(context: Context, proceed: Proceed, available: int) -> Answer:
    if available < context.cost:
        raise insufficient_credits(context.cost, available)
    answer = await proceed(context)
    assert context.made, f"{context.route.name} answers without `change`, so nobody pays for it"
    return answer


async def _before(context: Context) -> Kept | None:
    asked = context.asked
    assert asked is not None, "only asked of requests with a key"
    try:
        return await context.parts.state.look(lambda tx: idempotency.find(tx, asked))
    except Reused:
        raise reused() from None


async def _remembered(context: Context, made: Make, again: Look | None = None) -> Answer | Kept:
    """What the request's key was answered before; else what is made now, kept for the key in the same transaction."""
    asked = context.asked

    def work(tx: Transaction) -> Answer | Kept:
        if asked is None:
            return made(tx)
        found = idempotency.claim(tx, asked)
        if found is not None:
            return found if found.body is not None else _made_again(tx, found, again)
        answer = made(tx)
        kept = Kept(answer.status, answer.content_type, answer.body)
        if again is not None and len(answer.body) > KEPT_BYTES:
            kept = Kept(answer.status, answer.content_type, None, hashlib.sha256(answer.body).digest())
        idempotency.keep(tx, asked, kept)
        return answer

    try:
        return await context.parts.state.run(work)
    except Reused:
        raise reused() from None
    except Short as short:
        raise insufficient_credits(context.cost, short.available) from None


def _made_again(tx: Transaction, found: Kept, again: Look | None) -> Kept:
    assert again is not None, "only such answers are kept as digests"
    return Kept(found.status, found.content_type, encoded(again(tx), found.status).body, found.digest)
