"""Accounts, what they were granted, and their keys. Functions of a transaction, as everything beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from chainfolio.errors import BadRequest
from storage.state import audit, schema
from storage.state.database import Statement, Transaction, argument, literal, one

PLANS: Final = ("FREE", "LITE", "PRO")
GRANTS: Final = ("portfolio", "at-block", "enterprise")


@dataclass(frozen=True, slots=True)
class Account:
    """Who uses the service. A lapsed plan keeps its name; only `plan_expires_us` tells."""

    id: str
    name: str
    plan: str
    plan_expires_us: int | None
    created_us: int
    grants: frozenset[str]


@dataclass(frozen=True, slots=True)
class Key:
    """What is known about an API key after it was shown: everything but the key."""

    id: str
    account_id: str
    name: str
    hint: str
    created_us: int
    expires_us: int | None
    revoked_us: int | None


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling, as a valid key says; true as long as `changes` are still `as_of`."""

    account_id: str
    key_id: str
    plan: str
    plan_expires_us: int | None
    grants: frozenset[str]
    as_of: int


_ACCOUNTS, _GRANTS, _KEYS = schema.accounts, schema.grants, schema.keys
_COLUMNS = [_ACCOUNTS.c[name] for name in Account.__slots__ if name != "grants"]
_EVERY = sa.select(*_COLUMNS, _GRANTS.c.name).select_from(_ACCOUNTS.outerjoin(_GRANTS))
_ADD = Statement(_ACCOUNTS.insert())
_ADD_BALANCE = Statement(schema.balances.insert())
_ADD_GRANT = Statement(_GRANTS.insert())
_DROP_GRANT = Statement(
    _GRANTS.delete().where(_GRANTS.c.account_id == argument("owner"), _GRANTS.c.name == argument("grant"))
)
_ALL = Statement(_EVERY.order_by(_ACCOUNTS.c.created_us, _ACCOUNTS.c.id))
_ANY = Statement(sa.select(sa.func.count()).select_from(_ACCOUNTS))
_ONE = Statement(_EVERY.where(_ACCOUNTS.c.id == argument("id")))
_LOCK = Statement(sa.select(_ACCOUNTS.c.id).where(_ACCOUNTS.c.id == argument("id")).with_for_update())
_SET_PLAN = Statement(
    _ACCOUNTS.update()
    .where(_ACCOUNTS.c.id == argument("owner"))
    .values(plan=argument("new_plan"), plan_expires_us=argument("until"))
)
_ADD_KEY = Statement(_KEYS.insert(), [name for name in _KEYS.c.keys() if name != "revoked_us"])  # noqa: SIM118
_KEYS_OF = Statement(
    sa.select(*(_KEYS.c[name] for name in Key.__slots__))
    .where(_KEYS.c.account_id == argument("account_id"))
    .order_by(_KEYS.c.created_us, _KEYS.c.id)
)
_REVOKE = Statement(
    _KEYS.update()
    .where(_KEYS.c.id == argument("key_id"), _KEYS.c.revoked_us.is_(None))
    .values(revoked_us=argument("now"))
)
_OWNER = Statement(sa.select(_KEYS.c.account_id).where(_KEYS.c.id == argument("key_id")))
_MARKS = schema.marks
_CHANGES = Statement(sa.select(_MARKS.c.value).where(_MARKS.c.name == literal("access")))
_CHANGED = Statement(
    _MARKS.update().where(_MARKS.c.name == literal("access")).values(value=_MARKS.c.value + literal(1))
)
_PRINCIPAL = Statement(
    sa.select(
        _KEYS.c.hash,
        _KEYS.c.expires_us,
        _ACCOUNTS.c.id,
        _KEYS.c.id,
        _ACCOUNTS.c.plan,
        _ACCOUNTS.c.plan_expires_us,
        _GRANTS.c.name,
    )
    .select_from(_KEYS.join(_ACCOUNTS).outerjoin(_GRANTS, _GRANTS.c.account_id == _ACCOUNTS.c.id))
    .where(_KEYS.c.hash == argument("hash"), _KEYS.c.revoked_us.is_(None))
    .where(sa.or_(_KEYS.c.expires_us.is_(None), _KEYS.c.expires_us > argument("now")))
)


def create(tx: Transaction, account: Account) -> None:
    """A new account, with no credits and no key."""
    row = {name: getattr(account, name) for name in Account.__slots__ if name != "grants"}
    tx.run(_ADD, **row)
    tx.run(_ADD_BALANCE, account_id=account.id, available=0, held=0, earned=0)
    for name in sorted(account.grants):
        tx.run(_ADD_GRANT, account_id=account.id, name=name)
    detail = {"name": account.name, "plan": account.plan, "grants": sorted(account.grants)}
    audit.note(tx, account.created_us, audit.OPERATOR, account.id, "account created", detail)


def every(tx: Transaction) -> list[Account]:
    """All accounts in the order they were made."""
    return _accounts(tx.rows(_ALL))


def anybody(tx: Transaction) -> bool:
    """Whether there is any account."""
    return bool(tx.rows(_ANY)[0][0])


def find(tx: Transaction, id: str) -> Account | None:
    """One account, or None."""
    found = _accounts(tx.rows(_ONE, id=id))
    return found[0] if found else None


def existing(tx: Transaction, id: str) -> Account:
    """One account; BadRequest where there is none."""
    found = find(tx, id)
    if found is None:
        raise BadRequest("account", f"there is no account {id}", remedy="chainfolio account list")
    return found


def lock(tx: Transaction, id: str) -> None:
    """Let nobody else change what belongs to this account until the transaction ends."""
    tx.rows(_LOCK, id=id)


def grant(tx: Transaction, id: str, name: str, now_us: int) -> bool:
    """Grant something; False where the account has it."""
    lock(tx, id)
    if name in existing(tx, id).grants:
        return False
    tx.run(_ADD_GRANT, account_id=id, name=name)
    tx.run(_CHANGED)
    audit.note(tx, now_us, audit.OPERATOR, id, "granted", {"grant": name})
    return True


def revoke_grant(tx: Transaction, id: str, name: str, now_us: int) -> bool:
    """Take a grant back; False where the account does not have it."""
    existing(tx, id)
    if not tx.run(_DROP_GRANT, owner=id, grant=name):
        return False
    tx.run(_CHANGED)
    audit.note(tx, now_us, audit.OPERATOR, id, "grant revoked", {"grant": name})
    return True


def set_plan(tx: Transaction, id: str, plan: str, until_us: int | None, now_us: int) -> None:
    """Move an account to another plan; `until_us` None is for good."""
    before = existing(tx, id)
    tx.run(_SET_PLAN, owner=id, new_plan=plan, until=until_us)
    tx.run(_CHANGED)
    detail = {"from": before.plan, "to": plan, "expires_us": until_us}
    audit.note(tx, now_us, audit.OPERATOR, id, "plan changed", detail)


# --- keys ------------------------------------------------------------------------------------------------------------


def add_key(tx: Transaction, key: Key, hash: bytes) -> None:
    """One more key."""
    existing(tx, key.account_id)
    row = {name: getattr(key, name) for name in Key.__slots__ if name != "revoked_us"}
    tx.run(_ADD_KEY, **row, hash=hash)
    audit.note(tx, key.created_us, audit.OPERATOR, key.account_id, "key created", {"key": key.id, "name": key.name})


def revoke_key(tx: Transaction, id: str, now_us: int) -> bool:
    """End a key; False if there is no such key or it was revoked before."""
    if not tx.run(_REVOKE, key_id=id, now=now_us):
        return False
    tx.run(_CHANGED)
    owner = one(tx.rows(_OWNER, key_id=id))
    assert owner is not None, "a key that was revoked has an account"
    audit.note(tx, now_us, audit.OPERATOR, owner[0], "key revoked", {"key": id})
    return True


def keys(tx: Transaction, account_id: str) -> list[Key]:
    """An account's keys, the revoked and expired ones included, in the order they were made."""
    return [Key(*row) for row in tx.rows(_KEYS_OF, account_id=account_id)]


def changes(tx: Transaction) -> int:
    """How often keys, grants or plans have changed: as long as this stays, what is known of them holds."""
    row = one(tx.rows(_CHANGES))
    assert row is not None, "the mark is made with the tables"
    return int(row[0])


def principal(tx: Transaction, hash: bytes, now_us: int) -> tuple[bytes, int | None, Principal] | None:
    """Whose key has this hash, the hash as it is kept, and when the key ends; None for one that opens nothing."""
    rows = tx.rows(_PRINCIPAL, hash=hash, now=now_us)
    if not rows:
        return None
    kept, expires_us, account_id, key_id, plan, plan_expires_us, _ = rows[0]
    grants = frozenset(row[6] for row in rows if row[6])
    return bytes(kept), expires_us, Principal(account_id, key_id, plan, plan_expires_us, grants, changes(tx))


def checked_grants(names: Iterable[str]) -> frozenset[str]:
    """The names, where all of them can be granted."""
    found = frozenset(names)
    for name in sorted(found - set(GRANTS)):
        raise BadRequest("grant", f"`{name}` is no grant", remedy=f"one of {', '.join(GRANTS)}")
    return found


def checked_plan(plan: str) -> str:
    """The plan, where there is such a one."""
    if plan not in PLANS:
        raise BadRequest("plan", f"`{plan}` is no plan", remedy=f"one of {', '.join(PLANS)}")
    return plan


def _accounts(rows: Sequence[Any]) -> list[Account]:
    """Accounts from rows of account and grant, one row a grant."""
    granted: dict[tuple[Any, ...], set[str]] = {}
    for id, name, plan, expires, created, grant in rows:
        granted.setdefault((id, name, plan, expires, created), set()).update({grant} - {None})
    return [
        Account(id, name, plan, expires, created, frozenset(grants))
        for (id, name, plan, expires, created), grants in granted.items()
    ]
