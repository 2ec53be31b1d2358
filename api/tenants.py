"""Whose address book and bundles a request is about: the caller's own, or those of an account that delegated to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from chainfolio.api.changes import change
from chainfolio.api.context import Answer, Context
from chainfolio.storage.state import accounts, audit, delegations
from chainfolio.storage.state.database import Transaction

T = TypeVar("T")
DELEGATE: Final = "X-Delegate-For"
TAKES: Final = {DELEGATE: "The id of an account that delegated to yours: the request is about that account's."}
COMMON: Final = ("DELEGATE_NOT_FOUND",)


async def look(request: Context, work: Callable[[Transaction, str], T]) -> T:
    """Read what the account has; `work` is given its id."""
    return await request.parts.state.read(lambda tx: work(tx, _owner(request, tx)))


async def keep(
    request: Context,
    work: Callable[[Transaction, str], object],
    status: int = 200,
    repeat: Callable[[Transaction, str], object] | None = None,
) -> Answer:
    """Change what the account has, with nobody else changing it meanwhile; what a delegate changes is noted. `again`
    looks up an answer that is too long to be kept for who asks with the same Idempotency-Key."""

    def locked(tx: Transaction) -> object:
        account_id = _owner(request, tx)
        accounts.lock(tx, account_id)
        result = work(tx, account_id)
        if account_id != request.principal.account_id:
            now_us, actor = request.parts.environment.clock.now_us(), request.principal.key_id
            detail = {"by": request.principal.account_id, "call": request.route.name}
            audit.record(tx, now_us, actor, account_id, "changed by a delegate", detail)
        return result

    look_again = None if repeat is None else (lambda tx: repeat(tx, _owner(request, tx)))
    return await change(request, locked, status, look_again)


def _owner(request: Context, tx: Transaction) -> str:
    return delegations.acting_for(tx, request.principal.account_id, _delegating_account(request))


def _delegating_account(request: Context) -> str | None:
    """The account in the header; given twice, they are no account's id."""
    delegates = request.http.headers.getall(DELEGATE, [])
    return ",".join(delegates) if delegates else None
