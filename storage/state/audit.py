"""The audit log: who changed what in which account. Entries never change and contain no secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from chainfolio.storage.state import schema
from chainfolio.storage.state.database import Statement, Transaction, argument

OPERATOR: Final = "operator"
_AUDIT = schema.audit
_ADD = Statement(_AUDIT.insert(), ["at_us", "actor", "account_id", "action", "detail"])
_OF = Statement(
    sa.select(_AUDIT.c.at_us, _AUDIT.c.actor, _AUDIT.c.account_id, _AUDIT.c.action, _AUDIT.c.detail)
    .where(_AUDIT.c.account_id == argument("account_id"))
    .order_by(_AUDIT.c.id)
)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry of the audit log."""

    at_us: int
    actor: str
    account_id: str
    action: str
    detail: dict[str, Any]


def record(tx: Transaction, at_us: int, actor: str, account_id: str, action: str, detail: Mapping[str, object]) -> None:
    """Add an entry, in the transaction of the change."""
    encoded = msgspec.json.encode(dict(detail), order="sorted").decode()
    tx.run(_ADD, at_us=at_us, actor=actor, account_id=account_id, action=action, detail=encoded)


def entries(tx: Transaction, account_id: str) -> list[AuditEntry]:
    """Return the entries of an account, the oldest first."""
    return [
        AuditEntry(at_us, actor, owner, action, msgspec.json.decode(detail))
        for at_us, actor, owner, action, detail in tx.rows(_OF, account_id=account_id)
    ]
