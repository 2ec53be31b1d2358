"""Changes: the work, its payment and its stored answer are one transaction.

None of them exists without the others, even if the client disconnects or the process is killed. A refusal changes
nothing and costs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from chainfolio.api.context import Answer, Context, Proceed, encoded
from chainfolio.api.errors import insufficient_credits, problem_of, refusal
from chainfolio.api.idempotency import key_reused, replay
from chainfolio.errors import Locked
from chainfolio.storage.state import idempotency, ledger
from chainfolio.storage.state.database import Transaction, UniqueViolation
from chainfolio.storage.state.idempotency import KeyReused, StoredResponse
from chainfolio.storage.state.ledger import InsufficientCredits
from chainfolio.supervisor import described

log = structlog.stdlib.get_logger("chainfolio.api")
MAX_ATTEMPTS: Final = 4
MAX_STORED_BYTES: Final = 4096  # longest answer that is stored whole if it can be made again
Make = Callable[[Transaction], Answer]
Look = Callable[[Transaction], object]


async def change(context: Context, work: Look, status: int = 200, repeat: Look | None = None) -> Answer:
    """Do the work, pay for it and store its result as the answer, in one transaction; return the answer.

    Args:
        context: The request, which has the cost and the Idempotency-Key.
        work: Called in the transaction; what it returns is encoded as JSON. It may be called again after a conflict.
        status: Of the answer; 204 has no body.
        repeat: Makes the answer for a later request with the same key, if the answer is too long to be stored.

    Raises:
        Problem: 402 if the credits do not suffice, 422 if the key was used for another request.
        Locked: Other requests with the same key kept the change from being stored.
    """
    meter = context.parts.state.meter
    for _ in range(MAX_ATTEMPTS):
        bill = meter.bill(context.principal.account_id, context.principal.key_id, context.cost, context.request_id)

        def make_answer(tx: Transaction, bill: ledger.Bill = bill) -> Answer:
            ledger.check_affords(tx, bill)
            result = work(tx)
            meter.pay(tx, bill)
            return Answer(b"", status) if status == 204 else encoded(result, status)

        try:
            stored = await _store_once(context, make_answer, repeat)
        except UniqueViolation:  # the same request has just been answered elsewhere
            continue
        context.is_committed = True
        if isinstance(stored, StoredResponse):
            return replay(context, stored)
        meter.billed(bill)
        return stored
    raise Locked("state", "the same change is being made elsewhere", remedy="try again")


async def run_after_change(work: Awaitable[object]) -> None:
    """Do work that follows a committed change; log a failure, because the change is answered anyway."""
    try:
        await work
    except Exception as error:  # no error may undo the answer to a committed change
        log.warning("not done after a change", reason=described(error))


async def answer_change(context: Context, proceed: Proceed, available: int) -> Answer:
    """Return the stored answer of the request's Idempotency-Key, else the answer of the next steps.

    A refusal by the next steps is stored as the answer of the key, except 402, 429 and 5xx.
    `available` is the account's credits when the request was admitted.
    """
    if context.keyed_request is None:
        return await _make_affordable_change(context, proceed, available)
    stored = await _stored_response(context)
    if stored is not None and stored.body is not None:
        return replay(context, stored)
    try:
        return await _make_affordable_change(context, proceed, available if stored is None else context.cost)
    except Exception as error:  # a refusal is stored as the answer; a failure is not, because a retry may succeed
        problem = problem_of(error, context.request_id)
        if context.is_committed or problem.status >= 500 or problem.status in (402, 429):
            raise
        answer = refusal(context.route.envelope, problem)
    try:
        remembered = await _store_once(context, lambda _: answer)
    except UniqueViolation:
        return answer
    return replay(context, remembered) if isinstance(remembered, StoredResponse) else remembered


async def _make_affordable_change(context: Context, proceed: Proceed, available: int) -> Answer:
    """Return the answer of the next steps, which must pay for it; a 402 Problem without enough credits."""
    if available < context.cost:
        raise insufficient_credits(context.cost, available)
    answer = await proceed(context)
    assert context.is_committed, f"{context.route.name} answers without `change`, so it is not paid for"
    return answer


async def _stored_response(context: Context) -> StoredResponse | None:
    """Return the stored response of the request's key, None if there is none.

    Raises a 422 Problem if the key was used for another request.
    """
    key = context.keyed_request
    assert key is not None, "the caller checks for a key"
    try:
        return await context.parts.state.read(lambda tx: idempotency.find(tx, key))
    except KeyReused:
        raise key_reused() from None


async def _store_once(context: Context, make_answer: Make, repeat: Look | None = None) -> Answer | StoredResponse:
    """Return the stored answer of the request's key, or make and store one in one transaction.

    Without a key, the answer is made and not stored. Of a long answer that `repeat` can make again, only the hash is
    stored.

    Raises:
        Problem: 422 if the key was used for another request, 402 if the credits do not suffice.
        UniqueViolation: The same key was stored at the same time.
    """
    key = context.keyed_request

    def work(tx: Transaction) -> Answer | StoredResponse:
        if key is None:
            return make_answer(tx)
        stored = idempotency.claim(tx, key)
        if stored is not None:
            return stored if stored.body is not None else _repeated_answer(tx, stored, repeat)
        answer = make_answer(tx)
        remembered = StoredResponse(answer.status, answer.content_type, answer.body)
        if repeat is not None and len(answer.body) > MAX_STORED_BYTES:
            remembered = StoredResponse(answer.status, answer.content_type, None, hashlib.sha256(answer.body).digest())
        idempotency.store_response(tx, key, remembered)
        return answer

    try:
        return await context.parts.state.write(work)
    except KeyReused:
        raise key_reused() from None
    except InsufficientCredits as short:
        raise insufficient_credits(context.cost, short.available) from None


def _repeated_answer(tx: Transaction, stored: StoredResponse, repeat: Look | None) -> StoredResponse:
    assert repeat is not None, "only such answers are kept as digests"
    return StoredResponse(stored.status, stored.content_type, encoded(repeat(tx), stored.status).body, stored.digest)
