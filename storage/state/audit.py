"""The audit trail: who changed what of whose, and when. Rows are added and never changed; none holds a secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from storage.state import schema
from storage.state.database import Statement, Transaction, argument

OPERATOR: Final = "operator"
_AUDIT = schema.audit
_ADD = Statement(_AUDIT.insert(), ["at_us", "actor", "account_id", "action", "detail"])
_OF = Statement(
    sa.select(_AUDIT.c.at_us, _AUDIT.c.actor, _AUDIT.c.account_id, _AUDIT.c.action, _AUDIT.c.detail)
    .where(_AUDIT.c.account_id == argument("account_id"))
    .order_by(_AUDIT.c.id)
)


@dataclass(frozen=True, slots=True)
class Note:
    """One line of the trail."""

    at_us: int
    actor: str
    account_id: str
    action: str
    detail: dict[str, Any]


def note(tx: Transaction, at_us: int, actor: str, account_id: str, action: str, detail: Mapping[str, object]) -> None:
    """Write a line, in the transaction of the change that it tells of."""
    written = msgspec.json.encode(dict(detail), order="sorted").decode()
    tx.run(_ADD, at_us=at_us, actor=actor, account_id=account_id, action=action, detail=written)


def trail(tx: Transaction, account_id: str) -> list[Note]:
    """What was done to an account, the oldest first."""
    return [
        Note(at_us, actor, owner, action, msgspec.json.decode(detail))
        for at_us, actor, owner, action, detail in tx.rows(_OF, account_id=account_id)
    ]
