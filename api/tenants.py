"""Access to address books and bundles of the caller, or of an account that delegated to the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from chainfolio.api.changes import change
from chainfolio.api.context import Answer, Context
from chainfolio.storage.state import accounts, audit, delegations
from chainfolio.storage.state.database import Transaction

T = TypeVar("T")
DELEGATE: Final = "X-Delegate-For"
DELEGATE_HEADERS: Final = {DELEGATE: "Id of an account that delegated to yours: the request then uses its data."}
COMMON: Final = ("DELEGATE_NOT_FOUND",)


async def read_for_account(request: Context, work: Callable[[Transaction, str], T]) -> T:
    """Run a read for the request's account and return its result; `work` gets the account's id."""
    return await request.parts.state.read(lambda tx: work(tx, _owner(request, tx)))


async def change_for_account(
    request: Context,
    work: Callable[[Transaction, str], object],
    status: int = 200,
    repeat: Callable[[Transaction, str], object] | None = None,
) -> Answer:
    """Run a change for the account that the request is about, under the account's lock; return the answer.

    Changes by a delegate are written to the audit log. Errors are those of `change` and of `work`, and a refusal if the
    caller may not act for the account.

    Args:
        request: The request.
        work: Called with the transaction and the account's id; its result is the body.
        status: Of the answer.
        repeat: Makes the answer for a later request with the same Idempotency-Key, if it is too long to be stored.
    """

    def locked(tx: Transaction) -> object:
        account_id = _owner(request, tx)
        accounts.lock(tx, account_id)
        result = work(tx, account_id)
        if account_id != request.principal.account_id:
            now_us, actor = request.parts.environment.clock.now_us(), request.principal.key_id
            detail = {"by": request.principal.account_id, "call": request.route.name}
            audit.record(tx, now_us, actor, account_id, "changed by a delegate", detail)
        return result

    repeat_change = None if repeat is None else (lambda tx: repeat(tx, _owner(request, tx)))
    return await change(request, locked, status, repeat_change)


def _owner(request: Context, tx: Transaction) -> str:
    return delegations.acting_for(tx, request.principal.account_id, _delegating_account(request))


def _delegating_account(request: Context) -> str | None:
    """Return the account id in `X-Delegate-For`, None without it; repeated headers give an unknown id."""
    delegates = request.http.headers.getall(DELEGATE, [])
    return ",".join(delegates) if delegates else None
