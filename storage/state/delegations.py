"""Delegations: an account may let another one manage its address book and bundles."""

from __future__ import annotations

import re
from typing import Final

import sqlalchemy as sa

from chainfolio.errors import BadRequest
from chainfolio.storage.state import accounts, audit, schema
from chainfolio.storage.state.database import Statement, Transaction, argument
from chainfolio.storage.state.refusals import Refusal

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


def acting_for(tx: Transaction, caller_id: str, account_id: str | None) -> str:
    """Return the account that a request is about.

    Args:
        account_id: The account named by the request; None for the caller's own.

    Raises:
        Refusal: The account did not delegate to the caller, or does not exist; both have the same message.
    """
    if account_id is None:
        return caller_id
    if not _ID.match(account_id) or not tx.rows(_ONE, account_id=account_id, delegate_id=caller_id):
        raise Refusal("DELEGATE_NOT_FOUND", "no account of that id has delegated to yours")
    return account_id


def delegates(tx: Transaction, account_id: str) -> list[str]:
    """Return the accounts that may act for an account."""
    return [row[0] for row in tx.rows(_OF, account_id=account_id)]


def delegate(tx: Transaction, account_id: str, delegate_id: str, now_us: int) -> bool:
    """Let another account act for this one. Return False if it may already.

    Raises:
        BadRequest: An account does not exist, or both are the same.
    """
    accounts.lock(tx, account_id)
    accounts.existing(tx, account_id)
    accounts.existing(tx, delegate_id)
    if account_id == delegate_id:
        raise BadRequest("delegate", "an account acts for itself already")
    if tx.rows(_ONE, account_id=account_id, delegate_id=delegate_id):
        return False
    tx.run(_ADD, account_id=account_id, delegate_id=delegate_id)
    audit.record(tx, now_us, audit.OPERATOR, account_id, "delegated", {"to": delegate_id})
    return True


def withdraw(tx: Transaction, account_id: str, delegate_id: str, now_us: int) -> bool:
    """End a delegation. Return False if there is none.

    Raises:
        BadRequest: The account does not exist.
    """
    accounts.lock(tx, account_id)
    accounts.existing(tx, account_id)
    if not tx.run(_DROP, owner=account_id, delegate=delegate_id):
        return False
    audit.record(tx, now_us, audit.OPERATOR, account_id, "delegation ended", {"to": delegate_id})
    return True
