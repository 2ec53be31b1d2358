"""Accounts, their grants, and their keys. All functions run in a transaction of the caller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from chainfolio.errors import BadRequest
from chainfolio.storage.state import audit, schema
from chainfolio.storage.state.database import Row, Statement, Transaction, argument, literal, only_row

PLANS: Final = ("FREE", "LITE", "PRO")
GRANTS: Final = ("portfolio", "at-block", "enterprise", "sql")
SESSION_NAME: Final = "dashboard session"


@dataclass(frozen=True, slots=True)
class Account:
    """A customer of the service. An expired plan keeps its name; check `plan_expires_us`."""

    id: str
    name: str
    plan: str
    plan_expires_us: int | None
    created_us: int
    grants: frozenset[str]


@dataclass(frozen=True, slots=True)
class Key:
    """The stored facts about an API key, without the key."""

    id: str
    account_id: str
    name: str
    hint: str
    created_us: int
    expires_us: int | None
    revoked_us: int | None


@dataclass(frozen=True, slots=True)
class Principal:
    """The account and rights of a valid key. They are current while `changes` returns `as_of`.

    `rated_id` names what the rate limit counts: the key, or the account for all sessions of the dashboard together.
    """

    account_id: str
    key_id: str
    plan: str
    plan_expires_us: int | None
    grants: frozenset[str]
    as_of: int
    rated_id: str


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
        _KEYS.c.name,
        _ACCOUNTS.c.plan,
        _ACCOUNTS.c.plan_expires_us,
        _GRANTS.c.name,
    )
    .select_from(_KEYS.join(_ACCOUNTS).outerjoin(_GRANTS, _GRANTS.c.account_id == _ACCOUNTS.c.id))
    .where(_KEYS.c.hash == argument("hash"), _KEYS.c.revoked_us.is_(None))
    .where(sa.or_(_KEYS.c.expires_us.is_(None), _KEYS.c.expires_us > argument("now")))
)


def create(tx: Transaction, account: Account) -> None:
    """Add an account without credits and keys. It is recorded in the audit."""
    row = {name: getattr(account, name) for name in Account.__slots__ if name != "grants"}
    tx.run(_ADD, **row)
    tx.run(_ADD_BALANCE, account_id=account.id, available=0, held=0, earned=0)
    for name in sorted(account.grants):
        tx.run(_ADD_GRANT, account_id=account.id, name=name)
    detail = {"name": account.name, "plan": account.plan, "grants": sorted(account.grants)}
    audit.record(tx, account.created_us, audit.OPERATOR, account.id, "account created", detail)


def every(tx: Transaction) -> list[Account]:
    """Return all accounts in the order in which they were created."""
    return _accounts(tx.rows(_ALL))


def has_any(tx: Transaction) -> bool:
    """Return True if there is an account."""
    return bool(tx.rows(_ANY)[0][0])


def find(tx: Transaction, id: str) -> Account | None:
    """Return an account; None if it does not exist."""
    matches = _accounts(tx.rows(_ONE, id=id))
    return matches[0] if matches else None


def existing(tx: Transaction, id: str) -> Account:
    """Return an account.

    Raises:
        BadRequest: It does not exist.
    """
    account = find(tx, id)
    if account is None:
        raise BadRequest("account", f"there is no account {id}", remedy="chainfolio account list")
    return account


def lock(tx: Transaction, id: str) -> None:
    """Prevent other transactions from changing the account's data until this one ends."""
    tx.rows(_LOCK, id=id)


def grant(tx: Transaction, id: str, name: str, now_us: int) -> bool:
    """Add a grant to an account and record it in the audit. Return False if the account has it.

    The name is not checked: see `validated_grants`.

    Raises:
        BadRequest: The account does not exist.
    """
    lock(tx, id)
    if name in existing(tx, id).grants:
        return False
    tx.run(_ADD_GRANT, account_id=id, name=name)
    tx.run(_CHANGED)
    audit.record(tx, now_us, audit.OPERATOR, id, "granted", {"grant": name})
    return True


def revoke_grant(tx: Transaction, id: str, name: str, now_us: int) -> bool:
    """Remove a grant from an account and record it. Return False if the account does not have it.

    Raises:
        BadRequest: The account does not exist.
    """
    existing(tx, id)
    if not tx.run(_DROP_GRANT, owner=id, grant=name):
        return False
    tx.run(_CHANGED)
    audit.record(tx, now_us, audit.OPERATOR, id, "grant revoked", {"grant": name})
    return True


def set_plan(tx: Transaction, id: str, plan: str, until_us: int | None, now_us: int) -> None:
    """Change the plan of an account and record it in the audit. `until_us` is its end; None for no end.

    The plan is not checked: see `validated_plan`.

    Raises:
        BadRequest: The account does not exist.
    """
    before = existing(tx, id)
    tx.run(_SET_PLAN, owner=id, new_plan=plan, until=until_us)
    tx.run(_CHANGED)
    detail = {"from": before.plan, "to": plan, "expires_us": until_us}
    audit.record(tx, now_us, audit.OPERATOR, id, "plan changed", detail)


# --- keys ------------------------------------------------------------------------------------------------------------


def add_key(tx: Transaction, key: Key, hash: bytes) -> None:
    """Add a key, known by the hash of its text, to an account, and record it in the audit.

    Raises:
        BadRequest: The account does not exist.
    """
    existing(tx, key.account_id)
    row = {name: getattr(key, name) for name in Key.__slots__ if name != "revoked_us"}
    tx.run(_ADD_KEY, **row, hash=hash)
    audit.record(tx, key.created_us, audit.OPERATOR, key.account_id, "key created", {"key": key.id, "name": key.name})


def revoke_key(tx: Transaction, id: str, now_us: int) -> bool:
    """Revoke a key and record it. Return False if it does not exist or was revoked before."""
    if not tx.run(_REVOKE, key_id=id, now=now_us):
        return False
    tx.run(_CHANGED)
    owner = owner_of(tx, id)
    assert owner is not None, "a key that was revoked has an account"
    audit.record(tx, now_us, audit.OPERATOR, owner, "key revoked", {"key": id})
    return True


def owner_of(tx: Transaction, key_id: str) -> str | None:
    """Return the account of a key; None if the key does not exist."""
    row = only_row(tx.rows(_OWNER, key_id=key_id))
    return None if row is None else str(row[0])


def is_session(key_name: str) -> bool:
    """Return True for the name of a key that is a session of the dashboard."""
    return key_name == SESSION_NAME or key_name.startswith(f"{SESSION_NAME} of ")


def keys(tx: Transaction, account_id: str) -> list[Key]:
    """Return all keys of an account, revoked and expired ones included, in the order of their creation."""
    return [Key(*row) for row in tx.rows(_KEYS_OF, account_id=account_id)]


def changes(tx: Transaction) -> int:
    """Return a counter of changes to keys, grants and plans. It invalidates cached principals."""
    row = only_row(tx.rows(_CHANGES))
    assert row is not None, "the mark is made with the tables"
    return int(row[0])


def principal(tx: Transaction, hash: bytes, now_us: int) -> tuple[bytes, int | None, Principal] | None:
    """Return the stored hash, the key's end, and the principal of a valid key; None for other hashes."""
    rows = tx.rows(_PRINCIPAL, hash=hash, now=now_us)
    if not rows:
        return None
    stored_hash, expires_us, account_id, key_id, name, plan, plan_expires_us, _ = rows[0]
    grants = frozenset(row[7] for row in rows if row[7])
    rated_id = account_id if is_session(name) else key_id
    found = Principal(account_id, key_id, plan, plan_expires_us, grants, changes(tx), rated_id)
    return bytes(stored_hash), expires_us, found


def validated_grants(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set.

    Raises:
        BadRequest: A name is no grant.
    """
    grants = frozenset(names)
    for name in sorted(grants - set(GRANTS)):
        raise BadRequest("grant", f"`{name}` is no grant", remedy=f"one of {', '.join(GRANTS)}")
    return grants


def validated_plan(plan: str) -> str:
    """Return the plan.

    Raises:
        BadRequest: It does not exist.
    """
    if plan not in PLANS:
        raise BadRequest("plan", f"`{plan}` is no plan", remedy=f"one of {', '.join(PLANS)}")
    return plan


def _accounts(rows: Sequence[Any]) -> list[Account]:
    """Return accounts from rows of account and grant, one row per grant."""
    grants_by_account: dict[Row, set[str]] = {}
    for id, name, plan, expires, created, grant in rows:
        grants_by_account.setdefault((id, name, plan, expires, created), set()).update({grant} - {None})
    return [
        Account(id, name, plan, expires, created, frozenset(grants))
        for (id, name, plan, expires, created), grants in grants_by_account.items()
    ]
