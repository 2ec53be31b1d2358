"""The meter: limits request rates, reserves credits and settles them, many operations per transaction.

Operations that arrive during a transaction go into the next one together, so each costs less under load. Rates are
exact: a bucket stores the time of each allowed request, and allows another one only if fewer than its limit lie within
the last minute, over all processes.
"""

from __future__ import annotations

import asyncio
import random
import threading
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec
import sqlalchemy as sa
import structlog

from chainfolio.environment import Clock
from chainfolio.errors import StoreError
from chainfolio.storage.state import accounts, ledger, schema
from chainfolio.storage.state.database import Database, Row, Statement, Transaction, UniqueViolation, argument
from chainfolio.storage.state.sweep import EPOCH_US, PROCESS_BITS, call_id, sweep_slice
from chainfolio.supervisor import Supervisor, Task

WINDOW_US: Final = 60_000_000
MAX_BATCH: Final = 512  # operations in one transaction: others wait for its lock
ROUNDS: Final = 3
BACK_US: Final = 1_000_000
SOON_S: Final = 0.005
SWEEP_S: Final = 5.0
SWEEP: Final = "sweep"  # the task that expires reservations
RENEWALS: Final = 3  # in the time after which a reservation expires

log = structlog.stdlib.get_logger("chainfolio.state")

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
    """

    account_id: str
    key_id: str
    bucket: str
    limit: int
    cost: int
    request_id: str = ""
    as_of: int | None = None
    hold: bool = True


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
    """Post or void a reservation (`kind`). Has no effect if it is settled or expired."""

    reservation: Reservation
    kind: str


class Renewal(msgspec.Struct, frozen=True):
    """Void the reservation of a call that still runs, and reserve its credits again."""

    reservation: Reservation


Operation = AdmissionRequest | Settlement | Renewal
_Waiter = asyncio.Future[Admission] | None


@dataclass(slots=True)
class Meter:
    """The meter of one process. Reservations that are not settled expire after `hold_us`."""

    database: Database
    clock: Clock
    random: random.Random
    hold_us: int
    credit_totals: Counter[str] = field(default_factory=Counter)
    _pending: list[tuple[Operation, _Waiter]] = field(default_factory=list)
    _running: asyncio.Task[None] | None = None
    _soon: asyncio.TimerHandle | None = None
    supervisor: Supervisor = field(default_factory=Supervisor)
    _sweeps: bool = False
    _last_id: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: set[Reservation] = field(default_factory=set)

    async def admit(self, request: AdmissionRequest) -> Admission:
        """Check the rate of a request and reserve its credits. A cancelled caller's reservation is voided.

        With too few credits, the request is allowed without a reservation: the caller refuses it.
        """
        future = self._do(request)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._void(future.result())  # allowed, but the caller was cancelled
            raise

    async def settle_reservation(self, reservation: Reservation, kind: str) -> None:
        """Post or void a reservation. The ledger has it when this returns."""
        self._open.discard(reservation)
        await self._do(Settlement(reservation, kind))

    def settle_soon(self, reservation: Reservation, kind: str) -> None:
        """Post or void a reservation later, with the next request or within `SOON_S`.

        If the process dies before, the reservation expires and the call is free.
        """
        self._open.discard(reservation)
        self._pending.append((Settlement(reservation, kind), None))
        if self._running is None and self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON_S, self._start)

    def bill(self, account_id: str, key_id: str, amount: int, request_id: str) -> ledger.Bill:
        """Return the bill for a change, which is paid in the transaction of the change."""
        return ledger.Bill(account_id, amount, self.clock.now_us(), _memo(key_id, request_id))

    def pay(self, tx: Transaction, bill: ledger.Bill) -> None:
        """Pay a bill.

        Raises:
            ledger.InsufficientCredits: The account has too few credits.
        """
        (call_id,) = self._ids(1, tx.now_us())
        ledger.pay(tx, bill, call_id)

    def billed(self, bill: ledger.Bill) -> None:
        """Count the credits of a bill whose transaction was committed."""
        for kind in ("reserve", "post"):
            self.credit_totals[kind] += bill.amount

    async def close(self) -> None:
        """Run all pending operations, and stop."""
        if self._pending:
            self._start()
        while self._running is not None:
            await asyncio.wait([self._running])
        await self.supervisor.stop(SWEEP)
        self._sweeps = False

    def _do(self, operation: Operation) -> asyncio.Future[Admission]:
        future: asyncio.Future[Admission] = asyncio.get_running_loop().create_future()
        self._pending.append((operation, future))
        if self._running is None:
            self._start()
        return future

    def _start(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._running is None:
            self._running = asyncio.create_task(self._drain())
        if not self._sweeps:
            self._sweeps = True
            self.supervisor.start(SWEEP, self._sweep)

    async def _drain(self) -> None:
        try:
            while self._pending:
                for _ in range(ROUNDS):  # callers that become ready join the batch
                    await asyncio.sleep(0)
                batch, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
                await self._batch(batch)
        finally:
            self._running = None
            if self._pending:
                self._running = asyncio.create_task(self._drain())

    async def _batch(self, batch: Sequence[tuple[Operation, _Waiter]]) -> None:
        try:
            results = await self._apply_batch([operation for operation, _ in batch])
        except Exception as error:  # the transaction was rolled back: each operation gets the error
            log.warning("not metered", reason=str(error), then="what is reserved expires")
            for _, future in batch:
                if future is not None and not future.done():
                    future.set_exception(error)
            return
        for (operation, future), result in zip(batch, results, strict=True):
            self._count(operation, result)
            if future is None:
                continue
            if not future.done():
                if result.reservation is not None:
                    result.reservation.since_s = self.clock.monotonic_s()
                    self._open.add(result.reservation)
                future.set_result(result)
            else:
                self._void(result)

    def _count(self, operation: Operation, result: Admission) -> None:
        """Add the credits of an operation to `credit_totals`; a refused one adds none.

        A renewal counts as a reservation and a void; the reservation object that it renews gets the new call id.
        """
        if isinstance(operation, Settlement):
            self.credit_totals[operation.kind] += operation.reservation.amount
        elif result.reservation is not None:
            self.credit_totals["reserve"] += result.reservation.amount
        if isinstance(operation, Renewal) and result.reservation is not None:
            self.credit_totals["void"] += result.reservation.amount
            operation.reservation.call_id = result.reservation.call_id

    def _void(self, admitted: Admission) -> None:
        """Void the reservation of a caller that was cancelled."""
        if admitted.reservation is not None:
            self.settle_soon(admitted.reservation, "void")

    async def _apply_batch(self, operations: Sequence[Operation]) -> list[Admission]:
        one_by_one = False
        for _ in range(4):
            try:
                work = partial(self._apply, operations=operations, one_by_one=one_by_one)
                return await self.database.meter_transaction(work)
            except UniqueViolation:  # another process made the same bucket or the same id in the same microsecond
                continue
            except _AlreadySettled:
                one_by_one = True
        raise StoreError("state", "the meter's ids clash", remedy="check the clocks of the machines")

    def _apply(self, tx: Transaction, operations: Sequence[Operation], one_by_one: bool) -> list[Admission]:
        round = _MeterTransaction(tx, self.clock.now_us(), one_by_one)
        round.load(operations)
        round.ids = self._ids(len(operations), round.now_us)
        results = [round.apply(operation) for operation in operations]
        round.write()
        return results

    def _ids(self, count: int, now_us: int) -> list[int]:
        """Return increasing ids for calls that start now: SQLite appends increasing ids without a search."""
        with self._lock:  # changes are paid in threads
            last = self._last_id
            if (
                last is None or call_id(now_us + BACK_US, 0) < last
            ):  # the store's time was set back: another process number
                first, process = now_us, self.random.randrange(1, 2**PROCESS_BITS)
            else:
                first, process = max(now_us, (last >> PROCESS_BITS) + EPOCH_US + 1), last & (2**PROCESS_BITS - 1)
            ids = [call_id(at_us, process) for at_us in range(first, first + count)]
            self._last_id = ids[-1]
        return ids

    def _sweep_slice(self, tx: Transaction) -> bool:
        return sweep_slice(tx, self.clock.now_us(), self.hold_us)

    def _renew(self) -> None:
        """Reserve the credits of long calls again before they expire."""
        now_s = self.clock.monotonic_s()
        for reservation in self._open:
            if (now_s - reservation.since_s) * 1e6 >= self.hold_us / RENEWALS:
                reservation.since_s = now_s
                self._pending.append((Renewal(reservation), None))
        if self._pending:
            self._start()

    async def _sweep(self, task: Task) -> None:
        """Renew reservations of running calls, release expired ones, and delete expired rows, for ever."""
        while True:
            await asyncio.sleep(min(SWEEP_S, self.hold_us / 1e6 / RENEWALS / 2))
            self._renew()
            has_more = True
            while has_more:
                has_more = await self.database.write_async(self._sweep_slice)
                task.progressed()


def _memo(key_id: str, request_id: str) -> str:
    return f"{key_id} {request_id}".rstrip()


class _AlreadySettled(Exception):
    """A reservation of the batch was settled before. The batch is repeated one operation at a time."""


class _MeterTransaction:
    """One transaction of the meter: its reads, changes in memory, and its writes at the end."""

    def __init__(self, tx: Transaction, at_us: int, one_by_one: bool) -> None:
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
        """Read all rows that the operations need. All processes lock in one order, which prevents deadlocks."""
        admits = [operation for operation in operations if isinstance(operation, AdmissionRequest)]
        if any(operation.as_of is not None for operation in admits):
            self.changes = accounts.changes(self.tx)
        keys = sorted({(o.key_id, o.bucket) for o in admits if o.limit})
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
            key = (request.key_id, request.bucket)
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
        reservation = Reservation(account_id, self.ids.pop(), amount, memo)
        self.balances[account_id].move("reserve", amount)
        self.reserved.append(ledger.entry(account_id, self.at_us, "reserve", amount, reservation.call_id, memo))
        return reservation

    def renew(self, renewal: Renewal) -> Admission:
        """Void and reserve again. An expired reservation is reserved again if the credits are still available."""
        old = renewal.reservation
        if not self._add_settlement(old, "void", old.call_id) and self.balances[old.account_id].available < old.amount:
            return SETTLED
        reservation = self._reserve(old.account_id, old.amount, old.memo)
        self.renewed[old.call_id] = reservation.call_id
        return Admission(True, 0, 0, 0, 0, reservation)

    def settle_once(self, settlement: Settlement) -> Admission:
        """Settle a reservation. Has no effect if it is settled or expired."""
        self._add_settlement(
            settlement.reservation,
            settlement.kind,
            self.renewed.get(settlement.reservation.call_id, settlement.reservation.call_id),
        )
        return SETTLED

    def _add_settlement(self, reservation: Reservation, kind: str, call_id: int) -> bool:
        row = ledger.entry(reservation.account_id, self.at_us, kind, reservation.amount, call_id, "")
        if not self.one_by_one:
            self.settled.append(row)
        elif not self.tx.run_many(ledger.SETTLE, [row]):
            return False
        self.balances[reservation.account_id].move(kind, reservation.amount)
        return True

    def write(self) -> None:
        """Write all changes.

        Raises:
            _AlreadySettled: A reservation was settled by another transaction; this one must be rolled back.
        """
        changed = [(*key, moments.tobytes()) for key, moments in self.buckets.items() if key in self.changed_buckets]
        self.tx.run_many(_ADD_BUCKET, [row for row in changed if row[:2] not in self.stored_buckets])
        self.tx.run_many(
            _SET_BUCKET, [(moments, *key) for *key, moments in changed if tuple(key) in self.stored_buckets]
        )
        self.tx.run_many(ledger.ADD, self.reserved)
        if self.tx.run_many(ledger.SETTLE, self.settled) < len(self.settled):
            raise _AlreadySettled
        ledger.store_balances(self.tx, self.balances)
