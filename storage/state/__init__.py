"""The state store: accounts, keys, credits and tenants' data, in SQLite or PostgreSQL.

Each module has functions of a transaction about one subject. `State` opens the database and holds clock, randomness and
pepper. A key is shown once, when it is created, and found by one index lookup.
"""

from __future__ import annotations

import hmac
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

from chainfolio.environment import Clock
from chainfolio.errors import BadSettings, needs_extra
from chainfolio.storage.state import accounts, ledger, secret, sessions, subscriptions
from chainfolio.storage.state.accounts import Account, Key, Principal
from chainfolio.storage.state.credentials import BASE62, PEPPER_BYTES, digest, make_key, well_formed
from chainfolio.storage.state.database import Database, Time, Transaction, Work
from chainfolio.storage.state.meter import Meter

T = TypeVar("T")
HOLD_S: Final = 600
MAX_CACHED_KEYS: Final = 100_000


class State:
    """A state store. Safe to use from several threads; the meter belongs to one event loop."""

    def __init__(
        self, database: Database, pepper: bytes, clock: Clock, random: random.Random, hold_s: int = HOLD_S
    ) -> None:
        """Prepare a store over an open database. `pepper` is the secret of the hashes of its keys.

        `hold_s` is the time after which a reservation of credits expires.
        """
        assert len(pepper) >= PEPPER_BYTES, f"a pepper has {PEPPER_BYTES} bytes"
        self.database, self.clock, self.random = database, clock, random
        self.meter = Meter(database, clock, random, hold_s * 1_000_000)
        self._pepper = pepper
        self._cached_keys: dict[bytes, tuple[int | None, Principal]] = {}

    @classmethod
    def open(
        cls,
        url: str,
        pepper: bytes,
        clock: Clock,
        random: random.Random,
        hold_s: int = HOLD_S,
        time: Time | None = None,
    ) -> State:
        """Open the store at `sqlite:///path` or `postgresql://…`, and create or migrate its tables.

        Args:
            hold_s: Seconds after which a reservation expires.
            time: The store's time, in tests; None for that of the database or its machine.

        Raises:
            BadSettings: The URL is not the address of a store.
            StoreError: The store cannot be opened.
        """
        return cls(open_database(url, time), pepper, clock, random, hold_s)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    async def ping(self) -> None:
        """Read a row.

        Raises:
            StoreError: The store does not respond.
        """
        await self.database.read_async(lambda tx: accounts.changes(tx))

    async def write(self, work: Work[T]) -> T:
        """Run work in one transaction without blocking the event loop. Its commit survives a power failure."""
        return await self.database.write_async(work)

    # --- accounts and keys -------------------------------------------------------------------------------------------

    def create_account(
        self,
        name: str,
        plan: str = "FREE",
        credits: int = 0,
        grants: Iterable[str] = (),
        expires: int | None = None,
    ) -> tuple[Account, str]:
        """Create an account with its first key; return the account and the key's text.

        The text cannot be read again.

        Args:
            expires: End of the plan in microseconds; None for no end.

        Raises:
            BadRequest: The plan or a grant does not exist, or `credits` are out of range.
        """
        now_us = self.clock.now_us()
        granted = accounts.validated_grants(grants)
        account = Account(self.new_id("acc"), name, accounts.validated_plan(plan), expires, now_us, granted)
        key, token = self._new_key(account.id, "first", None)

        def work(tx: Transaction) -> None:
            accounts.create(tx, account)
            if credits:
                ledger.credit(tx, account.id, credits, now_us, "first credits")
            accounts.add_key(tx, key, digest(self._pepper, token))

        self.database.write(work)
        secret.is_own(self.database, self._pepper)  # store its fingerprint: other secrets are refused from now on
        return account, token

    def accounts(self) -> list[Account]:
        """Return all accounts in the order in which they were created."""
        return self.database.read(accounts.every)

    def account(self, id: str) -> Account | None:
        """Return an account; None if it does not exist."""
        return self.database.read(lambda tx: accounts.find(tx, id))

    def balance(self, account_id: str) -> int:
        """Return the credits that an account can spend; 0 for an unknown account."""
        return self.database.read(lambda tx: ledger.available(tx, account_id))

    async def subscribed(self, account_id: str, addresses: Iterable[str]) -> set[str]:
        """Return those of the canonical addresses that have a daily snapshot for the account now."""
        candidates, now_us = list(addresses), self.clock.now_us()
        return await self.database.read_async(lambda tx: subscriptions.subscribed(tx, account_id, candidates, now_us))

    def create_key(self, account_id: str, name: str, expires: int | None = None) -> tuple[Key, str]:
        """Create another key of an account; return its facts and its text, which cannot be read again.

        Args:
            expires: End of the key in microseconds; None for no end.

        Raises:
            BadRequest: The account does not exist.
        """
        key, token = self._new_key(account_id, name, expires)
        self.database.write(lambda tx: accounts.add_key(tx, key, digest(self._pepper, token)))
        return key, token

    async def open_session(self, token: str, *, link: bool = False) -> str | None:
        """Create a session for a key's account and return its key; None if the key may not begin one.

        Invalid keys and those of sessions begin none. A key that is a link is revoked, so that it works once. The
        oldest sessions beyond the maximum end.

        Args:
            link: Accept a link only, no other key.

        Raises:
            TooManySessions: The account has begun too many sessions in the last minute.
        """
        if not well_formed(token):
            return None
        hash, now_us, id = digest(self._pepper, token), self.clock.now_us(), self.new_id("key")
        fresh = make_key(self.random)

        def parent(tx: Transaction) -> Key | None:
            match = self._valid_key(tx, hash)
            return sessions.key_for_session(tx, match[1], now_us, needs_link=link) if match else None

        found = await self.read(parent)  # a request without a key takes no lock of the store
        if found is None:
            return None

        def work(tx: Transaction) -> bool:
            accounts.lock(tx, found.account_id)
            key = parent(tx)
            return key is not None and sessions.begin(tx, key, id, fresh[-4:], digest(self._pepper, fresh), now_us)

        return fresh if await self.write(work) else None

    async def close_session(self, token: str) -> None:
        """Revoke the key of a session; do nothing for other keys."""
        hash, now_us = digest(self._pepper, token), self.clock.now_us()

        def session(tx: Transaction) -> str | None:
            match = self._valid_key(tx, hash)
            return match[1].key_id if match and sessions.is_session_key(tx, match[1]) else None

        if (id := await self.read(session)) is not None:
            await self.write(lambda tx: accounts.revoke_key(tx, id, now_us))

    def revoke_key(self, id: str) -> bool:
        """Revoke a key and its sessions. Return False if there is none, or it was revoked before."""
        now_us = self.clock.now_us()
        return self.database.write(lambda tx: sessions.revoke_with_sessions(tx, id, now_us))

    def keys(self, account_id: str) -> list[Key]:
        """Return all keys of an account, also revoked and expired ones, in the order of their creation."""
        return self.database.read(lambda tx: accounts.keys(tx, account_id))

    def authenticate(self, token: str) -> Principal | None:
        """Return the principal of a key; None if it is unknown, revoked, expired or malformed."""
        if not well_formed(token):
            return None
        match = self.database.read(lambda tx: self._valid_key(tx, digest(self._pepper, token)))
        return match[1] if match else None

    async def caller(self, token: str) -> Principal | None:
        """Return the principal of a key, from memory if it was read before; None if it is not valid.

        If the meter then reports `is_stale`, the caller must call `clear_cached_keys` and try again.
        """
        hash = digest(self._pepper, token)
        cached = self._cached_keys.get(hash)
        if cached is None:
            if not well_formed(token):
                return None
            cached = await self.read(lambda tx: self._valid_key(tx, hash))
            if cached is None:
                return None
            if len(self._cached_keys) >= MAX_CACHED_KEYS:
                self._cached_keys.clear()
            self._cached_keys[hash] = cached
        expires_us, principal = cached
        return principal if expires_us is None or self.clock.now_us() < expires_us else None

    def clear_cached_keys(self) -> None:
        """Discard cached keys, because a key, grant or plan has changed."""
        self._cached_keys.clear()

    async def read(self, work: Work[T]) -> T:
        """Read without blocking the event loop, from one consistent state."""
        return await self.database.read_async(work)

    def _valid_key(self, tx: Transaction, hash: bytes) -> tuple[int | None, Principal] | None:
        match = accounts.principal(tx, hash, self.clock.now_us())
        return match[1:] if match and hmac.compare_digest(match[0], hash) else None

    def _new_key(self, account_id: str, name: str, expires: int | None) -> tuple[Key, str]:
        token = make_key(self.random)
        return Key(self.new_id("key"), account_id, name, token[-4:], self.clock.now_us(), expires, None), token

    def secret(self, purpose: str) -> bytes:
        """Return 32 bytes for one purpose, derived from the pepper: equal in all processes that share it."""
        return digest(self._pepper, f"secret for {purpose}")

    def new_id(self, kind: str) -> str:
        """Return a new random id with a prefix."""
        return f"{kind}_{''.join(self.random.choices(BASE62, k=16))}"


def open_database(url: str, time: Time | None = None) -> Database:
    """Open the database at a URL, with its tables.

    Raises:
        BadSettings: The URL is not the address of a store.
        MissingDependency: The driver for PostgreSQL is not installed.
        StoreError: The database cannot be opened, or has the tables of a later release.
    """
    if url.startswith(("postgresql://", "postgres://")):
        with needs_extra("postgres", "a state store on PostgreSQL"):
            from chainfolio.storage.state.postgres import PostgresDatabase

        return PostgresDatabase(url, time)
    if not url.startswith("sqlite:///") or url == "sqlite:///":
        remedy = "sqlite:///path/to/state.db or postgresql://user@host/name"
        raise BadSettings("state.url", "not the address of a state store", remedy=remedy)
    from chainfolio.storage.state.sqlite import SqliteDatabase

    return SqliteDatabase(Path(url.removeprefix("sqlite:///")), time)
