"""What the API needs of whoever keeps the keys: who a key belongs to, and what that account subscribed to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeVar

from chainfolio.storage.state.database import Transaction
from chainfolio.storage.state.ledger import Bill
from chainfolio.storage.state.meter import Admission, AdmissionRequest, Reservation

T = TypeVar("T")


class Meter(Protocol):
    """Lets requests in under their rate, and reserves and settles their credits."""

    @property
    def credit_totals(self) -> Mapping[str, int]:
        """Credits that this process has moved, by kind."""

    async def admit(self, request: AdmissionRequest) -> Admission:
        """Let a request in, or not."""

    async def settle_reservation(self, reservation: Reservation, kind: str) -> None:
        """Post or void; on return it is in the ledger."""

    def settle_soon(self, reservation: Reservation, kind: str) -> None:
        """Post or void without waiting."""

    def bill(self, account_id: str, key_id: str, amount: int, request_id: str) -> Bill:
        """What a change is paid with, in the transaction that makes it."""

    def pay(self, tx: Transaction, bill: Bill) -> None:
        """Take what a bill says; `ledger.InsufficientCredits` where it is not there any more."""

    def billed(self, bill: Bill) -> None:
        """That transaction is done."""


class Principal(Protocol):
    """Who is calling: an account, by one of its keys, with what it has been granted."""

    @property
    def account_id(self) -> str:
        """The account."""

    @property
    def key_id(self) -> str:
        """The key, by its id: the key itself is nowhere but in the request."""

    @property
    def plan(self) -> str:
        """FREE, LITE or PRO."""

    @property
    def plan_expires_us(self) -> int | None:
        """When the plan lapses; None is never."""

    @property
    def as_of(self) -> int:
        """How many changes of keys, grants and plans this knows of."""

    @property
    def grants(self) -> Collection[str]:
        """What the operator has granted: `portfolio`, `at-block`, `enterprise`."""


class Keys(Protocol):
    """Where keys are looked up."""

    @property
    def meter(self) -> Meter:
        """Rates and credits."""

    def secret(self, purpose: str) -> bytes:
        """32 bytes for one purpose, the same in every process of the store."""

    async def caller(self, token: str) -> Principal | None:
        """Whose key this is; None where it is no valid key now."""

    def clear_cached_keys(self) -> None:
        """Look every key up anew."""

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Something that is only read."""

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Some work in one transaction, off the event loop."""

    async def subscribed(self, account_id: str, addresses: Collection[str]) -> set[str]:
        """Those of some addresses that the account has a historical subscription for now."""
