"""Protocols of the state store as the API uses it: API keys, rates and credits, subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeVar

from chainfolio.storage.state.database import Transaction
from chainfolio.storage.state.ledger import Bill
from chainfolio.storage.state.meter_transaction import Admission, AdmissionRequest, Reservation

T = TypeVar("T")


class Meter(Protocol):
    """Admits requests by rate limit, and reserves and settles their credits."""

    @property
    def credit_totals(self) -> Mapping[str, int]:
        """Credits that this process has reserved, taken or given back, by kind."""

    async def admit(self, request: AdmissionRequest) -> Admission:
        """Count a request in its rate limit, reserve its credits if it asks for that, and return the result."""

    async def settle_reservation(self, reservation: Reservation, kind: str) -> None:
        """Write the end of a reservation to the ledger; `kind` is `post` (take) or `void` (give back).

        Raises:
            StoreError: The store failed.
        """

    def settle_soon(self, reservation: Reservation, kind: str) -> None:
        """Queue the end of a reservation, without waiting for the ledger."""

    def bill(self, account_id: str, key_id: str, amount: int, request_id: str) -> Bill:
        """Return the bill of a change, which `pay` takes in the change's transaction."""

    def pay(self, tx: Transaction, bill: Bill) -> None:
        """Take the credits of a bill.

        Raises:
            InsufficientCredits: The account no longer has the credits.
        """

    def billed(self, bill: Bill) -> None:
        """Count a bill in the totals after its transaction is committed."""


class Principal(Protocol):
    """The caller: an account, identified by one of its keys, with its grants and plan."""

    @property
    def account_id(self) -> str:
        """Id of the account."""

    @property
    def key_id(self) -> str:
        """Id of the key. The key itself is only in the request."""

    @property
    def rated_id(self) -> str:
        """The id whose requests a rate limit counts: the key, or the account for dashboard sessions."""

    @property
    def plan(self) -> str:
        """Plan of the account: FREE, LITE or PRO."""

    @property
    def plan_expires_us(self) -> int | None:
        """End of the plan in microseconds since 1970; None for never."""

    @property
    def as_of(self) -> int:
        """Version of keys, grants and plans that this was read from: their number of changes."""

    @property
    def grants(self) -> Collection[str]:
        """Grants by the operator: `portfolio`, `at-block`, `enterprise`, `sql`."""


class Keys(Protocol):
    """The state store."""

    @property
    def meter(self) -> Meter:
        """Rates and credits."""

    def secret(self, purpose: str) -> bytes:
        """Return 32 secret bytes for one purpose, the same in all processes of the store."""

    async def caller(self, token: str) -> Principal | None:
        """Return the account and key that a token belongs to; None if it is not a valid key now."""

    def clear_cached_keys(self) -> None:
        """Forget cached keys, so that each is looked up again."""

    async def open_session(self, token: str, *, link: bool = False) -> str | None:
        """Return the key of a new session for the account of a key or link; None if it may not begin one.

        With `link`, only a link may.

        Raises:
            TooManySessions: The account has begun too many sessions in the last minute.
        """

    async def close_session(self, token: str) -> None:
        """Revoke the key of a session."""

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run a read in a transaction and return its result."""

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run work in one write transaction, off the event loop, and return its result."""

    async def subscribed(self, account_id: str, addresses: Collection[str]) -> set[str]:
        """Return the addresses that the account has a historical subscription for now."""
