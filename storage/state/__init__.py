"""The state: accounts, keys, credits, and what tenants keep, in SQLite or PostgreSQL.

Functions of a transaction, one file a subject; `State` opens the database and knows the clock, the dice and the
pepper. A key is shown once, when it is made, and a look-up of one is one step in an index.
"""

from __future__ import annotations

import hmac
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

from chainfolio.errors import BadSettings
from chainfolio.seams import Clock
from storage.state import accounts, ledger, secret, subscriptions
from storage.state.accounts import Account, Key, Principal
from storage.state.credentials import BASE62, PEPPER_BYTES, digest, make_key, well_formed
from storage.state.database import Database, Time, Transaction, Work
from storage.state.meter import Meter

T = TypeVar("T")
HOLD_S: Final = 600
MAX_KNOWN: Final = 100_000


class State:
    """A state store. Safe to use from several threads; the meter belongs to one event loop."""

    def __init__(
        self, database: Database, pepper: bytes, clock: Clock, random: random.Random, hold_s: int = HOLD_S
    ) -> None:
        assert len(pepper) >= PEPPER_BYTES, f"a pepper has {PEPPER_BYTES} bytes"
        self.database, self.clock, self.random = database, clock, random
        self.meter = Meter(database, clock, random, hold_s * 1_000_000)
        self._pepper = pepper
        self._known: dict[bytes, tuple[int | None, Principal]] = {}

    @classmethod
    def open(
        cls, url: str, pepper: bytes, clock: Clock, random: random.Random, hold_s: int = HOLD_S,
        time: Time | None = None,
    ) -> State:  # fmt: skip
        """The store at `sqlite:///path` or `postgresql://…`, created or upgraded where that is needed.

        `time` is what the store's own time is taken from, instead of the database and the machine that it is on.
        """
        return cls(open_database(url, time), pepper, clock, random, hold_s)

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()

    async def ping(self) -> None:
        """Read a row; an error of the store where it does not answer."""
        await self.database.see(lambda tx: accounts.changes(tx))

    async def run(self, work: Work[T]) -> T:
        """Some work in one transaction, off the event loop; on return it outlives a power cut."""
        return await self.database.run(work)

    # --- accounts and keys -------------------------------------------------------------------------------------------

    def create_account(
        self,
        name: str,
        plan: str = "FREE",
        credits: int = 0,
        grants: Iterable[str] = (),
        expires: int | None = None,
    ) -> tuple[Account, str]:
        """A new account with its first key, which is never shown again. `expires` (microseconds) is the plan's end."""
        now_us = self.clock.now_us()
        granted = accounts.checked_grants(grants)
        account = Account(self.new_id("acc"), name, accounts.checked_plan(plan), expires, now_us, granted)
        key, token = self._new_key(account.id, "first", None)

        def work(tx: Transaction) -> None:
            accounts.create(tx, account)
            if credits:
                ledger.credit(tx, account.id, credits, now_us, "first credits")
            accounts.add_key(tx, key, digest(self._pepper, token))

        self.database.change(work)
        secret.is_own(self.database, self._pepper)  # from now on no other one opens this store
        return account, token

    def accounts(self) -> list[Account]:
        """All accounts in the order they were made."""
        return self.database.look(accounts.every)

    def account(self, id: str) -> Account | None:
        """One account, or None."""
        return self.database.look(lambda tx: accounts.find(tx, id))

    def balance(self, account_id: str) -> int:
        """Credits that can be spent: the sum of the account's rows in the ledger."""
        return self.database.look(lambda tx: ledger.available(tx, account_id))

    async def subscribed(self, account_id: str, addresses: Iterable[str]) -> set[str]:
        """Those of the addresses (in their one form) that the account gets daily snapshots of now."""
        wanted, now_us = list(addresses), self.clock.now_us()
        return await self.database.see(lambda tx: subscriptions.subscribed(tx, account_id, wanted, now_us))

    def create_key(self, account_id: str, name: str, expires: int | None = None) -> tuple[Key, str]:
        """One more key for an account, shown now and never again."""
        key, token = self._new_key(account_id, name, expires)
        self.database.change(lambda tx: accounts.add_key(tx, key, digest(self._pepper, token)))
        return key, token

    def revoke_key(self, id: str) -> bool:
        """Make a key worthless from now on; False if there is no such key or it was revoked before."""
        now_us = self.clock.now_us()
        return self.database.change(lambda tx: accounts.revoke_key(tx, id, now_us))

    def keys(self, account_id: str) -> list[Key]:
        """An account's keys, the revoked and expired ones included, in the order they were made."""
        return self.database.look(lambda tx: accounts.keys(tx, account_id))

    def authenticate(self, token: str) -> Principal | None:
        """Who a key belongs to; None for an unknown, revoked or expired one, and at once for a typing error."""
        if not well_formed(token):
            return None
        found = self.database.look(lambda tx: self._checked(tx, digest(self._pepper, token)))
        return found[1] if found else None

    async def caller(self, token: str) -> Principal | None:
        """`authenticate` for the event loop, from memory where the key was seen before: the meter says `stale` where
        that is no longer true, and then `forget` is due."""
        hash = digest(self._pepper, token)
        known = self._known.get(hash)
        if known is None:
            if not well_formed(token):
                return None
            known = await self.look(lambda tx: self._checked(tx, hash))
            if known is None:
                return None
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[hash] = known
        expires_us, principal = known
        return principal if expires_us is None or self.clock.now_us() < expires_us else None

    def forget(self) -> None:
        """Look every key up anew: some key, grant or plan has changed."""
        self._known.clear()

    async def look(self, work: Work[T]) -> T:
        """Something that is only read, as of one moment."""
        return await self.database.see(work)

    def _checked(self, tx: Transaction, hash: bytes) -> tuple[int | None, Principal] | None:
        found = accounts.principal(tx, hash, self.clock.now_us())
        return found[1:] if found and hmac.compare_digest(found[0], hash) else None

    def _new_key(self, account_id: str, name: str, expires: int | None) -> tuple[Key, str]:
        token = make_key(self.random)
        return Key(self.new_id("key"), account_id, name, token[-4:], self.clock.now_us(), expires, None), token

    def secret(self, purpose: str) -> bytes:
        """32 bytes for one purpose, made from the pepper: the same in every process that has it."""
        return digest(self._pepper, f"secret for {purpose}")

    def new_id(self, kind: str) -> str:
        """A name for something new."""
        return f"{kind}_{''.join(self.random.choices(BASE62, k=16))}"


def open_database(url: str, time: Time | None = None) -> Database:
    """The database at an address, with its tables."""
    if url.startswith(("postgresql://", "postgres://")):
        from storage.state.postgres import PostgresDatabase

        return PostgresDatabase(url, time)
    if not url.startswith("sqlite:///") or url == "sqlite:///":
        remedy = "sqlite:///path/to/state.db or postgresql://user@host/name"
        raise BadSettings("state.url", "not the address of a state store", remedy=remedy)
    from storage.state.sqlite import SqliteDatabase

    return SqliteDatabase(Path(url.removeprefix("sqlite:///")), time)
