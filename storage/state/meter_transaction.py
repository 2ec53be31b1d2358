"""Operations of the meter, and the transaction that applies a batch of them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import sqlalchemy as sa

from chainfolio.storage.state import accounts, ledger, schema
from chainfolio.storage.state.database import Row, Statement, Transaction, argument

WINDOW_US: Final = 60_000_000
BACK_US: Final = 1_000_000
_BUCKETS = schema.buckets
_BUCKET = Statement(
    sa.select(_BUCKETS.c.key_id, _BUCKETS.c.name, _BUCKETS.c.moments)
    .where(_BUCKETS.c.key_id == argument("key_id"), _BUCKETS.c.name == argument("name"))
    .with_for_update()
)
_ADD_BUCKET = Statement(_BUCKETS.insert())
_SET_BUCKET = Statement(
    _BUCKETS.update()
    .where(_BUCKETS.c.key_id == argument("of_key"), _BUCKETS.c.name == argument("of_name"))
    .values(moments=argument("new_moments"))
)


class AdmissionRequest(msgspec.Struct, frozen=True):
    """A request of a key that must be within its rate and affordable.

    Attributes:
        limit: Requests per minute; 0 for no limit.
        cost: Credits to reserve; 0 for none.
        request_id: Stored in the ledger with the key's id, to relate rows and responses.
        as_of: The value of `accounts.changes` with which the key was read; None skips this check.
        hold: Reserve the cost. If False, only the available credits are returned: the caller pays by a `ledger.Bill`.
        rated_id: What the rate counts, if not the key: the account, for all its sessions together.
    """

    account_id: str
    key_id: str
    bucket: str
    limit: int
    cost: int
    request_id: str = ""
    as_of: int | None = None
    hold: bool = True
    rated_id: str = ""

    @property
    def rate(self) -> tuple[str, str]:
        """The row of `buckets` that counts this request."""
        return self.rated_id or self.key_id, self.bucket


@dataclass(eq=False, slots=True)
class Reservation:
    """Credits that are reserved for a call since `since_s`, on this process's clock.

    Before they expire, they are reserved again for a long call, with another `call_id`.
    """

    account_id: str
    call_id: int
    amount: int
    memo: str = ""
    since_s: float = 0.0


class Admission(msgspec.Struct, frozen=True):
    """The result of an operation.

    Attributes:
        is_allowed: False if the rate is exceeded or `is_stale` is set.
        remaining: Requests of `limit` that are still allowed.
        reset_us: Time at which one more than that would be allowed.
        reservation: The reserved credits, if any.
        available: The available credits if the cost was not reserved.
        is_stale: Keys, grants or plans changed since the key was read; nothing was counted.
    """

    is_allowed: bool
    limit: int
    remaining: int
    reset_us: int
    now_us: int
    reservation: Reservation | None = None
    available: int | None = None
    is_stale: bool = False


SETTLED: Final = Admission(True, 0, 0, 0, 0)  # the result of settling has no content


class Settlement(msgspec.Struct, frozen=True):
    """Post or void a reservation (`kind`).

    Has no effect if it is settled, expired or lost in a crash of the store.
    """

    reservation: Reservation
    kind: str


class Renewal(msgspec.Struct, frozen=True):
    """Void the reservation of a call that still runs, and reserve its credits again."""

    reservation: Reservation


Operation = AdmissionRequest | Settlement | Renewal


def _memo(key_id: str, request_id: str) -> str:
    return f"{key_id} {request_id}".rstrip()


class AlreadySettled(Exception):
    """A reservation of the batch was settled before, or is lost.

    The batch is repeated one operation at a time.
    """


class MeterTransaction:
    """One transaction of the meter: its reads, changes in memory, and its writes at the end."""

    def __init__(self, tx: Transaction, at_us: int, one_by_one: bool) -> None:
        """Begin with nothing read: `load` reads what the operations need."""
        self.tx, self.at_us, self.one_by_one = tx, at_us, one_by_one
        self.now_us = 0
        self.ids: list[int] = []
        self.renewed: dict[int, int] = {}
        self.buckets: dict[tuple[str, str], array[int]] = {}
        self.stored_buckets: set[tuple[str, str]] = set()
        self.changed_buckets: set[tuple[str, str]] = set()
        self.balances: dict[str, ledger.Balance] = {}
        self.changes: int | None = None
        self.reserved: list[Row] = []
        self.settled: list[Row] = []

    def load(self, operations: Sequence[Operation]) -> None:
        """Read and lock all rows that the operations need, then read the store's time.

        All processes lock in one order, which prevents deadlocks.
        """
        admits = [operation for operation in operations if isinstance(operation, AdmissionRequest)]
        if any(operation.as_of is not None for operation in admits):
            self.changes = accounts.changes(self.tx)
        keys = sorted({o.rate for o in admits if o.limit})
        stored = {(key_id, name): array("q", moments) for key_id, name, moments in self.tx.rows_of_each(_BUCKET, keys)}
        self.stored_buckets.update(stored)
        self.buckets = {key: stored.get(key) or array("q") for key in keys}
        paying = {o.account_id for o in admits if o.cost}
        paying.update([o.reservation.account_id for o in operations if not isinstance(o, AdmissionRequest)])
        self.balances = ledger.balances(self.tx, paying)
        self.now_us = self.tx.now_us()  # after locking, so that times and transactions have one order

    def apply(self, operation: Operation) -> Admission:
        """Apply an operation and return its result."""
        match operation:
            case AdmissionRequest():
                return self.admit(operation)
            case Settlement():
                return self.settle_once(operation)
            case Renewal():
                return self.renew(operation)

    def admit(self, request: AdmissionRequest) -> Admission:
        """Count a request against its rate, and reserve its cost.

        A request over its rate and a stale one are neither allowed nor counted. With too few credits, a request is
        counted and allowed, but without a reservation: the caller refuses it. Without `hold`, none is made.
        """
        remaining, reset_us, now_us = 0, self.now_us, self.now_us
        if request.as_of is not None and request.as_of != self.changes:
            return Admission(False, request.limit, 0, reset_us, now_us, is_stale=True)
        if request.limit:
            key = request.rate
            moments = self.buckets[key]
            if moments and moments[-1] > now_us:
                # The store's clock was set back: earlier requests count as made now, so that they free no room and
                # count for at most a minute.
                moments = self.buckets[key] = array("q", [min(time_us, now_us) for time_us in moments])
                self.changed_buckets.add(key)
            del moments[: bisect_right(moments, now_us - WINDOW_US)]
            if len(moments) >= request.limit:
                reset_us = moments[len(moments) - request.limit] + WINDOW_US
                return Admission(False, request.limit, 0, reset_us, now_us)
            moments.append(now_us)
            self.changed_buckets.add(key)
            remaining, reset_us = request.limit - len(moments), moments[0] + WINDOW_US
        if not request.cost:
            return Admission(True, request.limit, remaining, reset_us, now_us)
        balance = self.balances[request.account_id]
        if balance.available < request.cost or not request.hold:
            return Admission(True, request.limit, remaining, reset_us, now_us, None, balance.available)
        reservation = self._reserve(request.account_id, request.cost, _memo(request.key_id, request.request_id))
        return Admission(True, request.limit, remaining, reset_us, now_us, reservation)

    def _reserve(self, account_id: str, amount: int, memo: str) -> Reservation:
        """Reserve credits, which the account must have; with `one_by_one` write its row now, else at the end."""
        reservation = Reservation(account_id, self.ids.pop(), amount, memo)
        self.balances[account_id].move("reserve", amount)
        row = ledger.entry(account_id, self.at_us, "reserve", amount, reservation.call_id, memo)
        if self.one_by_one:  # a settlement of the same batch looks for it
            self.tx.run_many(ledger.ADD, [row])
        else:
            self.reserved.append(row)
        return reservation

    def renew(self, renewal: Renewal) -> Admission:
        """Void a reservation and make it again; return SETTLED if it cannot be made again.

        An expired reservation is reserved again if the credits are still available.
        """
        old = renewal.reservation
        if not self._add_settlement(old, "void", old.call_id) and self.balances[old.account_id].available < old.amount:
            return SETTLED
        reservation = self._reserve(old.account_id, old.amount, old.memo)
        self.renewed[old.call_id] = reservation.call_id
        return Admission(True, 0, 0, 0, 0, reservation)

    def settle_once(self, settlement: Settlement) -> Admission:
        """Settle a reservation. Has no effect if it is settled, expired or lost."""
        self._add_settlement(
            settlement.reservation,
            settlement.kind,
            self.renewed.get(settlement.reservation.call_id, settlement.reservation.call_id),
        )
        return SETTLED

    def _add_settlement(self, reservation: Reservation, kind: str, call_id: int) -> bool:
        """Settle a reservation and move its credits; False if it was settled before, or lost.

        In a batch the row is only collected: whether it was settled shows when the batch is stored.
        """
        row = ledger.entry(reservation.account_id, self.at_us, kind, reservation.amount, call_id, "")
        if not self.one_by_one:
            self.settled.append(row)
        elif not ledger.settle(self.tx, [row]):
            return False
        self.balances[reservation.account_id].move(kind, reservation.amount)
        return True

    def write(self) -> None:
        """Write all changes.

        Raises:
            AlreadySettled: A reservation was settled by another transaction or is lost; this one must be rolled back.
        """
        changed = [(*key, moments.tobytes()) for key, moments in self.buckets.items() if key in self.changed_buckets]
        self.tx.run_many(_ADD_BUCKET, [row for row in changed if row[:2] not in self.stored_buckets])
        self.tx.run_many(
            _SET_BUCKET, [(moments, *key) for *key, moments in changed if tuple(key) in self.stored_buckets]
        )
        self.tx.run_many(ledger.ADD, self.reserved)
        if ledger.settle(self.tx, self.settled) < len(self.settled):
            raise AlreadySettled
        ledger.store_balances(self.tx, self.balances)
