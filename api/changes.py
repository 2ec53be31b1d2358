"""A change: what it does, what it costs and the answer to it are one transaction, so that none of them is there without
the others, whoever leaves and whatever is killed. A refusal changes nothing and costs nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from chainfolio.api.charge import insufficient_credits
from chainfolio.api.context import Answer, Context, Proceed, encoded
from chainfolio.api.errors import problem_of, refusal
from chainfolio.api.idempotency import replayed, reused
from chainfolio.errors import Locked
from chainfolio.storage.state import idempotency, ledger
from chainfolio.storage.state.database import Transaction, UniqueViolation
from chainfolio.storage.state.idempotency import KeyReused, StoredResponse
from chainfolio.storage.state.ledger import InsufficientCredits
from chainfolio.supervisor import described

log = structlog.stdlib.get_logger("chainfolio.api")
TRIES: Final = 4
KEPT_BYTES: Final = 4096  # of an answer that can be made again
Make = Callable[[Transaction], Answer]
Look = Callable[[Transaction], object]


async def change(context: Context, work: Look, status: int = 200, repeat: Look | None = None) -> Answer:
    """Do the work, take what it costs, and keep the answer that its result is.

    `again` looks up what a later request with the same key is told, where the answer is too long to be kept.
    """
    meter = context.parts.state.meter
    for _ in range(TRIES):
        bill = meter.bill(context.principal.account_id, context.principal.key_id, context.cost, context.request_id)

        def make_answer(tx: Transaction, bill: ledger.Bill = bill) -> Answer:
            ledger.check_affords(tx, bill)
            result = work(tx)
            meter.pay(tx, bill)
            return Answer(b"", status) if status == 204 else encoded(result, status)

        try:
            stored = await _remembered(context, make_answer, repeat)
        except UniqueViolation:  # the same request has just been answered elsewhere
            continue
        context.made = True
        if isinstance(stored, StoredResponse):
            return replayed(context, stored)
        meter.billed(bill)
        return stored
    raise Locked("state", "the same change is being made elsewhere", remedy="try again")


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
    stored = await _before(context)
    if stored is not None and stored.body is not None:
        return replayed(context, stored)
    try:
        return await _afforded(context, proceed, available if stored is None else context.cost)
    except Exception as error:  # a refusal is an answer to keep; a failure is none, for trying again may go better
        problem = problem_of(error, context.request_id)
        if context.made or problem.status >= 500 or problem.status in (402, 429):
            raise
        answer = refusal(context.route.envelope, problem)
    try:
        remembered = await _remembered(context, lambda _: answer)
    except UniqueViolation:
        return answer
    return replayed(context, remembered) if isinstance(remembered, StoredResponse) else remembered


async def _afforded(context: Context, proceed: Proceed, available: int) -> Answer:
    if available < context.cost:
        raise insufficient_credits(context.cost, available)
    answer = await proceed(context)
    assert context.made, f"{context.route.name} answers without `change`, so nobody pays for it"
    return answer


async def _before(context: Context) -> StoredResponse | None:
    key = context.asked
    assert key is not None, "only asked of requests with a key"
    try:
        return await context.parts.state.read(lambda tx: idempotency.find(tx, key))
    except KeyReused:
        raise reused() from None


async def _remembered(context: Context, make_answer: Make, repeat: Look | None = None) -> Answer | StoredResponse:
    """What the request's key was answered before; else what is made now, kept for the key in the same transaction."""
    key = context.asked

    def work(tx: Transaction) -> Answer | StoredResponse:
        if key is None:
            return make_answer(tx)
        stored = idempotency.claim(tx, key)
        if stored is not None:
            return stored if stored.body is not None else _repeated_answer(tx, stored, repeat)
        answer = make_answer(tx)
        remembered = StoredResponse(answer.status, answer.content_type, answer.body)
        if repeat is not None and len(answer.body) > KEPT_BYTES:
            remembered = StoredResponse(answer.status, answer.content_type, None, hashlib.sha256(answer.body).digest())
        idempotency.store_response(tx, key, remembered)
        return answer

    try:
        return await context.parts.state.write(work)
    except KeyReused:
        raise reused() from None
    except InsufficientCredits as short:
        raise insufficient_credits(context.cost, short.available) from None


def _repeated_answer(tx: Transaction, stored: StoredResponse, repeat: Look | None) -> StoredResponse:
    assert repeat is not None, "only such answers are kept as digests"
    return StoredResponse(stored.status, stored.content_type, encoded(repeat(tx), stored.status).body, stored.digest)
