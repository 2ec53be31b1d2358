"""The meter: limits request rates, reserves credits and settles them, many operations per transaction.

Operations that arrive during a transaction go into the next one together, so each costs less under load. Rates are
exact: a bucket stores the time of each allowed request, and allows another one only if fewer than its limit lie within
the last minute, over all processes.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from chainfolio.environment import Clock
from chainfolio.errors import StoreError
from chainfolio.storage.state import ledger, sessions
from chainfolio.storage.state.database import Database, Transaction, UniqueViolation
from chainfolio.storage.state.meter_transaction import (
    BACK_US,
    Admission,
    AdmissionRequest,
    AlreadySettled,
    MeterTransaction,
    Operation,
    Renewal,
    Reservation,
    Settlement,
    _memo,
)
from chainfolio.storage.state.sweep import EPOCH_US, PROCESS_BITS, call_id, sweep_slice
from chainfolio.supervisor import Supervisor, Task

MAX_BATCH: Final = 512  # operations in one transaction: others wait for its lock
ROUNDS: Final = 3
SOON_S: Final = 0.005
SWEEP_S: Final = 5.0
SESSIONS_S: Final = 3600.0  # between two looks for sessions that ended: all keys are read
SWEEP: Final = "sweep"  # the task that expires reservations
RENEWALS: Final = 3  # in the time after which a reservation expires

log = structlog.stdlib.get_logger("chainfolio.state")


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

        A request over its rate and a stale one are not allowed. With too few credits, the request is allowed
        without a reservation: the caller refuses it. Raises StoreError if the batch of the request fails.
        """
        future = self._do(request)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._void(future.result())  # allowed, but the caller was cancelled
            raise

    async def settle_reservation(self, reservation: Reservation, kind: str) -> None:
        """Post or void (`kind`) a reservation. The ledger has it when this returns."""
        self._open.discard(reservation)
        await self._do(Settlement(reservation, kind))

    def settle_soon(self, reservation: Reservation, kind: str) -> None:
        """Post or void (`kind`) a reservation later, with the next request or within `SOON_S`.

        If the process dies before, the reservation expires and the call is free.
        """
        self._open.discard(reservation)
        self._pending.append((Settlement(reservation, kind), None))
        if self._running is None and self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON_S, self._start_draining)

    def bill(self, account_id: str, key_id: str, amount: int, request_id: str) -> ledger.Bill:
        """Return the bill for a change, which the caller pays in the transaction of the change.

        Nothing is stored.
        """
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
        """Run all pending operations, then stop the sweep of expired reservations.

        Errors of operations go to those who wait for them. A later operation starts the meter again.
        """
        if self._pending:
            self._start_draining()
        while self._running is not None:
            await asyncio.wait([self._running])
        await self.supervisor.stop(SWEEP)
        self._sweeps = False

    def _do(self, operation: Operation) -> asyncio.Future[Admission]:
        """Queue an operation for the next transaction, and return the future of its result."""
        future: asyncio.Future[Admission] = asyncio.get_running_loop().create_future()
        self._pending.append((operation, future))
        if self._running is None:
            self._start_draining()
        return future

    def _start_draining(self) -> None:
        """Start the drain of pending operations now instead of at the timer, and the sweep.

        A drain that runs goes on.
        """
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._running is None:
            self._running = asyncio.create_task(self._drain())
        if not self._sweeps:
            self._sweeps = True
            self.supervisor.start(SWEEP, self._sweep)

    async def _drain(self) -> None:
        """Apply pending operations in batches until none is left; started again if it fails before."""
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
        """Apply a batch and set each caller's result; if it fails, each gets the error.

        Reservations of callers that were cancelled are voided.
        """
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
        """Apply operations in one transaction; repeated if ids clash or a reservation was settled before.

        Raises StoreError after the fourth attempt.
        """
        one_by_one = False
        for _ in range(4):
            try:
                work = partial(self._apply, operations=operations, one_by_one=one_by_one)
                return await self.database.meter_transaction(work)
            except UniqueViolation:  # another process made the same bucket or the same id in the same microsecond
                continue
            except AlreadySettled:
                one_by_one = True
        raise StoreError("state", "the meter's ids clash", remedy="check the clocks of the machines")

    def _apply(self, tx: Transaction, operations: Sequence[Operation], one_by_one: bool) -> list[Admission]:
        """Apply operations in one transaction, and return their results in order."""
        round = MeterTransaction(tx, self.clock.now_us(), one_by_one)
        round.load(operations)
        round.ids = self._ids(len(operations), round.now_us)
        results = [round.apply(operation) for operation in operations]
        round.write()
        return results

    def _ids(self, count: int, now_us: int) -> list[int]:
        """Return increasing ids for calls that start now: SQLite appends increasing ids without a search.

        No other process makes the same ids, except by chance after the clock was set back.
        """
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

    def _sweep_sessions(self, tx: Transaction) -> bool:
        return sessions.drop_ended(tx, self.clock.now_us())

    def _renew(self) -> None:
        """Queue the renewal of reservations older than `hold_us / RENEWALS`, and start applying the queue."""
        now_s = self.clock.monotonic_s()
        for reservation in self._open:
            if (now_s - reservation.since_s) * 1e6 >= self.hold_us / RENEWALS:
                reservation.since_s = now_s
                self._pending.append((Renewal(reservation), None))
        if self._pending:
            self._start_draining()

    async def _sweep(self, task: Task) -> None:
        """Renew reservations of running calls, release expired ones, and delete expired rows, for ever."""
        next_sessions_s = self.clock.monotonic_s()
        while True:
            await asyncio.sleep(min(SWEEP_S, self.hold_us / 1e6 / RENEWALS / 2))
            self._renew()
            has_more = True
            while has_more:
                has_more = await self.database.write_async(self._sweep_slice)
                task.progressed()
            if self.clock.monotonic_s() >= next_sessions_s:
                next_sessions_s = self.clock.monotonic_s() + SESSIONS_S
                while await self.database.write_async(self._sweep_sessions):
                    task.progressed()
