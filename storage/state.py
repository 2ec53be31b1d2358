"""The state: accounts, their API keys, and the ledger of their credits. SQLite here; the SQL is made from `schema.py`.

A key is shown once, when it is made. What is kept is its keyed hash, so that neither a stolen database nor a stolen
pepper alone gives anybody a key, and a look-up is one step in an index.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import random
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite as sqlite_dialect

from chainfolio.errors import BadRequest, BadSettings, StoreError
from chainfolio.seams import Clock
from storage import schema
from storage.disk import sync
from storage.migrations import migrate
from storage.sqlite import connect, said, writing

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PREFIX = "cf_live_"
SECRET_LENGTH = 30
CHECKSUM_LENGTH = 6
PLANS = ("FREE", "LITE", "PRO")
PEPPER_BYTES = 32


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
    """Who is calling, as a valid key says."""

    account_id: str
    key_id: str
    plan: str
    plan_expires_us: int | None
    grants: frozenset[str]


class State:
    """Accounts and keys in one SQLite file. Safe to use from several threads."""

    def __init__(self, path: Path, pepper: bytes, clock: Clock, random: random.Random) -> None:
        assert len(pepper) >= PEPPER_BYTES, f"a pepper has {PEPPER_BYTES} bytes"
        self.path = path
        self._pepper, self._clock, self._random = pepper, clock, random
        migrate(path, schema.HEAD)
        self._writer = connect(path, store="state")
        self._reader = connect(path, store="state", reader=True)
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()

    @classmethod
    def open(cls, url: str, pepper: bytes, clock: Clock, random: random.Random) -> State:
        """The store at `sqlite:///path`, created or upgraded where that is needed."""
        if url.startswith(("postgresql://", "postgres://")):
            raise BadSettings(
                "state.url", "PostgreSQL is not yet served by this release", cure="use sqlite:///path/to/state.db"
            )
        if not url.startswith("sqlite:///") or url == "sqlite:///":
            raise BadSettings("state.url", "not the address of a state store", cure="sqlite:///path/to/state.db")
        return cls(Path(url.removeprefix("sqlite:///")), pepper, clock, random)

    def close(self) -> None:
        """Let go of the file."""
        with self._write_lock, self._read_lock:
            self._reader.close()
            self._writer.close()

    # --- accounts ----------------------------------------------------------------------------------------------------

    def create_account(
        self,
        name: str,
        plan: str = "FREE",
        credits: int = 0,
        grants: Iterable[str] = (),
        expires: int | None = None,
    ) -> tuple[Account, str]:
        """A new account with its first key, which is never shown again. `expires` (microseconds) is the plan's end."""
        if plan not in PLANS:
            raise BadRequest("plan", f"`{plan}` is no plan", cure=f"one of {', '.join(PLANS)}")
        if credits < 0:
            raise BadRequest("credits", "an account cannot start below zero")
        now = self._clock.now_us()
        account = Account(self._id("acc"), name, plan, expires, now, frozenset(grants))
        with self._write() as connection:
            row = {"id": account.id, "name": name, "plan": plan, "plan_expires_us": expires, "created_us": now}
            connection.execute(_sql().add_account, row)
            for grant in sorted(account.grants):
                connection.execute(_sql().add_grant, {"account_id": account.id, "name": grant})
            if credits:
                entry = {"account_id": account.id, "at_us": now, "kind": "grant", "amount": credits}
                connection.execute(_sql().add_entry, entry | {"memo": "first credits"})
            _, token = self._add_key(connection, account.id, "first", None)
        return account, token

    def accounts(self) -> list[Account]:
        """All accounts in the order they were made."""
        return _accounts(self._read(_sql().accounts, {}))

    def account(self, id: str) -> Account | None:
        """One account, or None."""
        found = _accounts(self._read(_sql().account, {"id": id}))
        return found[0] if found else None

    def balance(self, account_id: str) -> int:
        """Credits left: the sum of the account's rows in the ledger."""
        return int(self._read(_sql().balance, {"account_id": account_id})[0][0])

    # --- keys --------------------------------------------------------------------------------------------------------

    def create_key(self, account_id: str, name: str, expires: int | None = None) -> tuple[Key, str]:
        """One more key for an account, shown now and never again."""
        with self._write() as connection:
            if not connection.execute(_sql().account, {"id": account_id}).fetchall():
                raise BadRequest("account", f"there is no account {account_id}", cure="chainfolio account list")
            return self._add_key(connection, account_id, name, expires)

    def revoke_key(self, id: str) -> bool:
        """Make a key worthless from now on; False if there is no such key or it was revoked before."""
        with self._write() as connection:
            return connection.execute(_sql().revoke_key, {"key_id": id, "now": self._clock.now_us()}).rowcount > 0

    def keys(self, account_id: str) -> list[Key]:
        """An account's keys, the revoked and expired ones included, in the order they were made."""
        return [Key(*row) for row in self._read(_sql().keys, {"account_id": account_id})]

    def authenticate(self, token: str) -> Principal | None:
        """Who a key belongs to; None for an unknown, revoked or expired one, and at once for a typing error."""
        if not well_formed(token):
            return None
        digest = self._digest(token)
        rows = self._read(_sql().principal, {"hash": digest, "now": self._clock.now_us()})
        if not rows or not hmac.compare_digest(rows[0][0], digest):
            return None
        _, account_id, key_id, plan, plan_expires_us, _ = rows[0]
        return Principal(account_id, key_id, plan, plan_expires_us, frozenset(row[5] for row in rows if row[5]))

    def _add_key(
        self, connection: sqlite3.Connection, account_id: str, name: str, expires: int | None
    ) -> tuple[Key, str]:
        token = make_key(self._random)
        key = Key(self._id("key"), account_id, name, token[-4:], self._clock.now_us(), expires, None)
        row = {"id": key.id, "account_id": account_id, "name": name, "hash": self._digest(token), "hint": key.hint}
        connection.execute(_sql().add_key, row | {"created_us": key.created_us, "expires_us": expires})
        return key, token

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._pepper, token.encode(), hashlib.sha256)

    def _id(self, kind: str) -> str:
        return f"{kind}_{''.join(self._random.choices(BASE62, k=16))}"

    def _read(self, sql: str, arguments: dict[str, object]) -> list[Any]:
        with said("state", self.path), self._read_lock:
            return self._reader.execute(sql, arguments).fetchall()

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with said("state", self.path), self._write_lock, writing(self._writer) as connection:
            yield connection


def make_key(random: random.Random) -> str:
    """A new key: prefix, 30 random base62 characters (178 bits), checksum."""
    body = PREFIX + "".join(random.choices(BASE62, k=SECRET_LENGTH))
    return body + _checksum(body)


def well_formed(token: str) -> bool:
    """Whether a text can be a key: its shape and its checksum, nothing secret."""
    body, checksum = token[:-CHECKSUM_LENGTH], token[-CHECKSUM_LENGTH:]
    return (
        token.isascii()
        and token.startswith(PREFIX)
        and len(token) == len(PREFIX) + SECRET_LENGTH + CHECKSUM_LENGTH
        and checksum == _checksum(body)
    )


def _checksum(body: str) -> str:
    value, digits = zlib.crc32(body.encode()), ""
    for _ in range(CHECKSUM_LENGTH):
        value, digit = divmod(value, len(BASE62))
        digits = BASE62[digit] + digits
    return digits


def pepper(path: Path) -> bytes:
    """The secret under which keys are hashed, from a file that only its owner can read; made where there is none.

    Whoever loses it must make all keys anew: it belongs into the backup, apart from the database.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(PEPPER_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            # A link, not a rename: of two processes that start at once, the second must take the first one's.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        sync(path.parent)
    secret = path.read_bytes()
    if len(secret) != PEPPER_BYTES:
        raise StoreError("state", f"{path} is damaged: {len(secret)} bytes", cure="restore it from a backup")
    return secret


def _accounts(rows: Sequence[Any]) -> list[Account]:
    """Accounts from rows of account and grant, one row a grant."""
    granted: dict[tuple[Any, ...], set[str]] = {}
    for id, name, plan, expires, created, grant in rows:
        granted.setdefault((id, name, plan, expires, created), set()).update({grant} - {None})
    return [
        Account(id, name, plan, expires, created, frozenset(grants))
        for (id, name, plan, expires, created), grants in granted.items()
    ]


@dataclass(frozen=True, slots=True)
class _Sql:
    """Every statement as text for the raw driver."""

    add_account: str
    add_grant: str
    add_key: str
    add_entry: str
    accounts: str
    account: str
    balance: str
    keys: str
    revoke_key: str
    principal: str


@cache
def _sql() -> _Sql:
    accounts, grants, keys, ledger = schema.accounts, schema.grants, schema.keys, schema.ledger
    key_columns = [keys.c[name] for name in Key.__slots__]
    account_columns = [accounts.c[name] for name in Account.__slots__ if name != "grants"]
    every = sa.select(*account_columns, grants.c.name).select_from(accounts.outerjoin(grants))
    principal = (
        sa.select(keys.c.hash, accounts.c.id, keys.c.id, accounts.c.plan, accounts.c.plan_expires_us, grants.c.name)
        .select_from(keys.join(accounts).outerjoin(grants, grants.c.account_id == accounts.c.id))
        .where(keys.c.hash == sa.bindparam("hash"), keys.c.revoked_us.is_(None))
        .where(sa.or_(keys.c.expires_us.is_(None), keys.c.expires_us > sa.bindparam("now")))
    )
    revoke = keys.update().where(keys.c.id == sa.bindparam("key_id"), keys.c.revoked_us.is_(None))
    return _Sql(
        add_account=_text(accounts.insert()),
        add_grant=_text(grants.insert()),
        add_key=_text(keys.insert(), [name for name in keys.c.keys() if name != "revoked_us"]),  # noqa: SIM118
        add_entry=_text(ledger.insert(), ["account_id", "at_us", "kind", "amount", "memo"]),
        accounts=_text(every.order_by(accounts.c.created_us, accounts.c.id)),
        account=_text(every.where(accounts.c.id == sa.bindparam("id"))),
        balance=_text(
            sa.select(sa.func.coalesce(sa.func.sum(ledger.c.amount), sa.literal_column("0"))).where(
                ledger.c.account_id == sa.bindparam("account_id")
            )
        ),
        keys=_text(
            sa.select(*key_columns)
            .where(keys.c.account_id == sa.bindparam("account_id"))
            .order_by(keys.c.created_us, keys.c.id)
        ),
        revoke_key=_text(revoke.values(revoked_us=sa.bindparam("now"))),
        principal=_text(principal),
    )


def _text(statement: Any, columns: list[str] | None = None) -> str:
    """SQL with `:name` parameters, as the sqlite3 module takes them."""
    dialect = sqlite_dialect.dialect(paramstyle="named")
    return str(statement.compile(dialect=dialect, column_keys=columns))
