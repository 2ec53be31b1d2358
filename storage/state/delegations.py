"""Who may act for whom: an account delegates its address book and bundles to another one."""

from __future__ import annotations

import re
from typing import Final

import sqlalchemy as sa

from chainfolio.errors import BadRequest
from storage.state import accounts, audit, schema
from storage.state.database import Statement, Transaction, argument
from storage.state.refusals import Refusal

_ID: Final = re.compile(r"[A-Za-z0-9_]{1,64}\Z", re.ASCII)
_DELEGATIONS = schema.delegations
_ONE = Statement(
    sa.select(_DELEGATIONS.c.delegate_id).where(
        _DELEGATIONS.c.account_id == argument("account_id"), _DELEGATIONS.c.delegate_id == argument("delegate_id")
    )
)
_OF = Statement(
    sa.select(_DELEGATIONS.c.delegate_id)
    .where(_DELEGATIONS.c.account_id == argument("account_id"))
    .order_by(_DELEGATIONS.c.delegate_id)
)
_ADD = Statement(_DELEGATIONS.insert())
_DROP = Statement(
    _DELEGATIONS.delete().where(
        _DELEGATIONS.c.account_id == argument("owner"), _DELEGATIONS.c.delegate_id == argument("delegate")
    )
)


def acting_for(tx: Transaction, caller_id: str, named: str | None) -> str:
    """The account that a request is about: the caller's own, or the named one, which must have delegated to it.

    An account that did not delegate and one that is not there are refused in the same words.
    """
    if named is None:
        return caller_id
    if not _ID.match(named) or not tx.rows(_ONE, account_id=named, delegate_id=caller_id):
        raise Refusal("DELEGATE_NOT_FOUND", "no account of that id has delegated to yours")
    return named


def delegates(tx: Transaction, account_id: str) -> list[str]:
    """Who may act for an account."""
    return [row[0] for row in tx.rows(_OF, account_id=account_id)]


def delegate(tx: Transaction, account_id: str, delegate_id: str, now_us: int) -> bool:
    """Let another account act for this one; False where it may already."""
    accounts.lock(tx, account_id)
    accounts.existing(tx, account_id)
    accounts.existing(tx, delegate_id)
    if account_id == delegate_id:
        raise BadRequest("delegate", "an account acts for itself already")
    if tx.rows(_ONE, account_id=account_id, delegate_id=delegate_id):
        return False
    tx.run(_ADD, account_id=account_id, delegate_id=delegate_id)
    audit.note(tx, now_us, audit.OPERATOR, account_id, "delegated", {"to": delegate_id})
    return True


def withdraw(tx: Transaction, account_id: str, delegate_id: str, now_us: int) -> bool:
    """End a delegation; False where there is none."""
    accounts.lock(tx, account_id)
    accounts.existing(tx, account_id)
    if not tx.run(_DROP, owner=account_id, delegate=delegate_id):
        return False
    audit.note(tx, now_us, audit.OPERATOR, account_id, "delegation ended", {"to": delegate_id})
    return True
