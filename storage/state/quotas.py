"""Quotas of accounts: defaults of the settings, or values set by the operator.

A lowered quota refuses additions and deletes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import sqlalchemy as sa

from chainfolio.errors import BadRequest
from chainfolio.settings import Quotas
from chainfolio.storage.state import accounts, audit, schema
from chainfolio.storage.state.database import Statement, Transaction, argument, only_row

# The name of a quota in the store, and its setting.
NAMES: Final[Mapping[str, str]] = {"addressbook": "addressbook", "bundles": "bundles", "bundle-size": "bundle_size"}
MAX_QUOTA: Final = 1_000_000

_QUOTAS = schema.quotas
_ONE = Statement(
    sa.select(_QUOTAS.c.value).where(_QUOTAS.c.account_id == argument("account_id"), _QUOTAS.c.name == argument("name"))
)
_ADD = Statement(_QUOTAS.insert())
_DROP = Statement(
    _QUOTAS.delete().where(_QUOTAS.c.account_id == argument("owner"), _QUOTAS.c.name == argument("quota"))
)


def limit(tx: Transaction, account_id: str, name: str, defaults: Quotas) -> int:
    """Return a quota of an account; `name` is a key of NAMES."""
    row = only_row(tx.rows(_ONE, account_id=account_id, name=name))
    return int(row[0]) if row else int(getattr(defaults, NAMES[name]))


def limits(tx: Transaction, account_id: str, defaults: Quotas) -> dict[str, int]:
    """Return all quotas of an account by name."""
    return {name: limit(tx, account_id, name, defaults) for name in NAMES}


def override(tx: Transaction, account_id: str, name: str, value: int | None, now_us: int) -> None:
    """Set a quota of an account; None restores the value of the settings.

    Raises:
        BadRequest: The quota or the account does not exist, or the value is out of range.
    """
    if name not in NAMES:
        raise BadRequest("quota", f"`{name}` is no quota", remedy=f"one of {', '.join(NAMES)}")
    if value is not None and not 0 <= value <= MAX_QUOTA:
        raise BadRequest("quota", f"0 to {MAX_QUOTA:,}")
    accounts.lock(tx, account_id)
    accounts.existing(tx, account_id)
    tx.run(_DROP, owner=account_id, quota=name)
    if value is not None:
        tx.run(_ADD, account_id=account_id, name=name, value=value)
    audit.record(tx, now_us, audit.OPERATOR, account_id, "quota changed", {"quota": name, "value": value})
