"""The meter: lets requests in under their rate, reserves their credits and settles them, many at a time.

What arrives while a transaction runs goes into the next one together, so the more there is to do the cheaper it gets.
Rates are exact: a bucket keeps the moment of every request that it let in, and lets one more in only if fewer than
its limit lie within the last minute, whatever process they came through.
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
from typing import Any, Final

import msgspec
import sqlalchemy as sa
import structlog

from chainfolio.errors import StoreError
from chainfolio.seams import Clock
from chainfolio.supervisor import Supervisor, Task
from storage.state import accounts, ledger, schema
from storage.state.database import Database, Statement, Transaction, UniqueViolation, argument
from storage.state.sweep import EPOCH_US, PROCESS_BITS, call_id, swept

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


class Admit(msgspec.Struct, frozen=True):
    """May a request of this key come in, and are its credits there? `limit` 0 asks for no rate, `cost` 0 for none.

    `request_id` goes into the ledger beside the key: by it a row is found for an answer, and an answer for a row.
    `as_of` are the `accounts.changes` that what is known of the key holds for; None asks for no check of that. Without
    `hold` it is only told what is available, because who asks pays by a `ledger.Bill`.
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
    """Credits that are reserved for a call, since `since_s` on this process's own clock. A call that takes long has
    them reserved anew, under another `call_id`, before they expire."""

    account_id: str
    call_id: int
    amount: int
    memo: str = ""
    since_s: float = 0.0


class Admitted(msgspec.Struct, frozen=True):
    """What became of it. `remaining` of the `limit` can still come, `reset_us` is when one more than that could.

    `held` is there where credits were reserved; where they were not, `available` says how many there are. `stale`:
    keys, grants or plans have changed since the key was looked up, and nothing was counted.
    """

    let_in: bool
    limit: int
    remaining: int
    reset_us: int
    now_us: int
    held: Reservation | None = None
    available: int | None = None
    stale: bool = False


SETTLED: Final = Admitted(True, 0, 0, 0, 0)  # what settling is answered: nothing


class Settle(msgspec.Struct, frozen=True):
    """Post or void what is held for a call; again, or after it expired, changes nothing."""

    held: Reservation
    kind: str


class Renew(msgspec.Struct, frozen=True):
    """Give back what is held for a call that still runs, and reserve it anew."""

    held: Reservation


Operation = Admit | Settle | Renew
_Waiter = asyncio.Future[Admitted] | None


@dataclass(slots=True)
class Meter:
    """The meter of one process. `hold_us` is after how long a reservation that nobody settles expires."""

    database: Database
    clock: Clock
    random: random.Random
    hold_us: int
    moved: Counter[str] = field(default_factory=Counter)
    _waiting: list[tuple[Operation, _Waiter]] = field(default_factory=list)
    _running: asyncio.Task[None] | None = None
    _soon: asyncio.TimerHandle | None = None
    supervisor: Supervisor = field(default_factory=Supervisor)
    _sweeps: bool = False
    _last_id: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: set[Reservation] = field(default_factory=set)

    async def admit(self, asked: Admit) -> Admitted:
        """Let a request in, or not."""
        future = self._do(asked)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._unheld(future.result())  # it was let in in the very moment in which it left
            raise

    async def settle(self, held: Reservation, kind: str) -> None:
        """Post or void; on return it is in the ledger."""
        self._open.discard(held)
        await self._do(Settle(held, kind))

    def settle_soon(self, held: Reservation, kind: str) -> None:
        """Post or void without waiting: with the next request that comes, or in a moment. If it never comes to it, the
        reservation expires and nobody has paid."""
        self._open.discard(held)
        self._waiting.append((Settle(held, kind), None))
        if self._running is None and self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON_S, self._start)

    def bill(self, account_id: str, key_id: str, amount: int, request_id: str) -> ledger.Bill:
        """What a change is paid with, in the transaction that makes it."""
        return ledger.Bill(account_id, amount, self.clock.now_us(), _memo(key_id, request_id))

    def pay(self, tx: Transaction, bill: ledger.Bill) -> None:
        """Take what a bill says."""
        (call_id,) = self._ids(1, tx.now_us())
        ledger.pay(tx, bill, call_id)

    def billed(self, bill: ledger.Bill) -> None:
        """That transaction is done: its credits count among those that this process has moved."""
        for kind in ("reserve", "post"):
            self.moved[kind] += bill.amount

    async def close(self) -> None:
        """Do what is waiting, and stop."""
        if self._waiting:
            self._start()
        while self._running is not None:
            await asyncio.wait([self._running])
        await self.supervisor.stop(SWEEP)
        self._sweeps = False

    def _do(self, operation: Operation) -> asyncio.Future[Admitted]:
        future: asyncio.Future[Admitted] = asyncio.get_running_loop().create_future()
        self._waiting.append((operation, future))
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
            while self._waiting:
                for _ in range(ROUNDS):  # whoever is ready, or has just been heard, comes along
                    await asyncio.sleep(0)
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                await self._batch(batch)
        finally:
            self._running = None
            if self._waiting:
                self._running = asyncio.create_task(self._drain())

    async def _batch(self, batch: Sequence[tuple[Operation, _Waiter]]) -> None:
        try:
            results = await self._applied([operation for operation, _ in batch])
        except Exception as error:  # all of the batch failed alike, and nothing of it was done
            log.warning("not metered", reason=str(error), then="what is reserved expires")
            for _, future in batch:
                if future is not None and not future.done():
                    future.set_exception(error)
            return
        for (operation, future), result in zip(batch, results, strict=True):
            if isinstance(operation, Settle):
                self.moved[operation.kind] += operation.held.amount
            elif result.held is not None:
                self.moved["reserve"] += result.held.amount
            if isinstance(operation, Renew) and result.held is not None:
                self.moved["void"] += result.held.amount
                operation.held.call_id = result.held.call_id
            if future is None:
                continue
            if not future.done():
                if result.held is not None:
                    result.held.since_s = self.clock.monotonic_s()
                    self._open.add(result.held)
                future.set_result(result)
            else:
                self._unheld(result)

    def _unheld(self, admitted: Admitted) -> None:
        """Give back what was reserved for one who has gone: nobody else knows of it."""
        if admitted.held is not None:
            self.settle_soon(admitted.held, "void")

    async def _applied(self, operations: Sequence[Operation]) -> list[Admitted]:
        one_by_one = False
        for _ in range(4):
            try:
                return await self.database.hot(lambda tx: self._apply(tx, operations, one_by_one))  # noqa: B023
            except UniqueViolation:  # another process made the same bucket or the same id in the same microsecond
                continue
            except _Settled:
                one_by_one = True
        raise StoreError("state", "the meter's ids clash", remedy="check the clocks of the machines")

    def _apply(self, tx: Transaction, operations: Sequence[Operation], one_by_one: bool) -> list[Admitted]:
        round = _Round(tx, self.clock.now_us(), one_by_one)
        round.load(operations)
        round.ids = self._ids(len(operations), round.now_us)
        results = [round.done(operation) for operation in operations]
        round.keep()
        return results

    def _ids(self, count: int, now_us: int) -> list[int]:
        """Ids for calls that begin now, growing: SQLite appends them instead of looking for their place."""
        with self._lock:  # changes are paid in threads
            last = self._last_id
            if last is None or call_id(now_us + BACK_US, 0) < last:  # another number for a time that is had twice
                first, process = now_us, self.random.randrange(1, 2**PROCESS_BITS)
            else:
                first, process = max(now_us, (last >> PROCESS_BITS) + EPOCH_US + 1), last & (2**PROCESS_BITS - 1)
            ids = [call_id(at_us, process) for at_us in range(first, first + count)]
            self._last_id = ids[-1]
        return ids

    def _swept(self, tx: Transaction) -> bool:
        return swept(tx, self.clock.now_us(), self.hold_us)

    def _renew(self) -> None:
        """Reserve anew what is held for calls that have run for some time, so that it does not expire under them."""
        now_s = self.clock.monotonic_s()
        for held in self._open:
            if (now_s - held.since_s) * 1e6 >= self.hold_us / RENEWALS:
                held.since_s = now_s
                self._waiting.append((Renew(held), None))
        if self._waiting:
            self._start()

    async def _sweep(self, task: Task) -> None:
        """Renew what the living hold, expire what the dead have reserved, and forget what nobody will ask for again."""
        while True:
            await asyncio.sleep(min(SWEEP_S, self.hold_us / 1e6 / RENEWALS / 2))
            self._renew()
            more = True
            while more:
                more = await self.database.run(self._swept)
                task.progressed()


def _memo(key_id: str, request_id: str) -> str:
    return f"{key_id} {request_id}".rstrip()


class _Settled(Exception):
    """Something of the batch had been settled before: which, is seen one by one."""


class _Round:
    """One transaction of the meter: what it read, changes in memory, and writes at its end."""

    def __init__(self, tx: Transaction, at_us: int, one_by_one: bool) -> None:
        self.tx, self.at_us, self.one_by_one = tx, at_us, one_by_one
        self.now_us = 0
        self.ids: list[int] = []
        self.renewed: dict[int, int] = {}
        self.buckets: dict[tuple[str, str], array[int]] = {}
        self.kept: set[tuple[str, str]] = set()
        self.fuller: set[tuple[str, str]] = set()
        self.balances: dict[str, ledger.Balance] = {}
        self.changes: int | None = None
        self.reserved: list[tuple[Any, ...]] = []
        self.settled: list[tuple[Any, ...]] = []

    def load(self, operations: Sequence[Operation]) -> None:
        """Read everything, in one order for all processes: whoever locks in order cannot lock in a circle."""
        admits = [operation for operation in operations if isinstance(operation, Admit)]
        if any(operation.as_of is not None for operation in admits):
            self.changes = accounts.changes(self.tx)
        asked = sorted({(o.key_id, o.bucket) for o in admits if o.limit})
        found = {(key_id, name): array("q", moments) for key_id, name, moments in self.tx.each(_BUCKET, asked)}
        self.kept.update(found)
        self.buckets = {key: found.get(key) or array("q") for key in asked}
        paying = {o.account_id for o in admits if o.cost}
        paying.update([o.held.account_id for o in operations if not isinstance(o, Admit)])
        self.balances = ledger.balances(self.tx, paying)
        self.now_us = self.tx.now_us()  # with the locks in hand, so that no other transaction is later and was first

    def done(self, operation: Operation) -> Admitted:
        """What becomes of an operation."""
        match operation:
            case Admit():
                return self.admit(operation)
            case Settle():
                return self.settle(operation)
            case Renew():
                return self.renew(operation)

    def admit(self, asked: Admit) -> Admitted:
        """The rate first: who comes too often is not asked for credits."""
        remaining, reset_us, now_us = 0, self.now_us, self.now_us
        if asked.as_of is not None and asked.as_of != self.changes:
            return Admitted(False, asked.limit, 0, reset_us, now_us, stale=True)
        if asked.limit:
            key = (asked.key_id, asked.bucket)
            moments = self.buckets[key]
            if moments and moments[-1] > now_us:
                # The store's clock was set back: what came before counts as if it had come now, so that it makes no
                # room, and for no longer than a minute.
                moments = self.buckets[key] = array("q", [min(moment, now_us) for moment in moments])
                self.fuller.add(key)
            del moments[: bisect_right(moments, now_us - WINDOW_US)]
            if len(moments) >= asked.limit:
                reset_us = moments[len(moments) - asked.limit] + WINDOW_US
                return Admitted(False, asked.limit, 0, reset_us, now_us)
            moments.append(now_us)
            self.fuller.add(key)
            remaining, reset_us = asked.limit - len(moments), moments[0] + WINDOW_US
        if not asked.cost:
            return Admitted(True, asked.limit, remaining, reset_us, now_us)
        balance = self.balances[asked.account_id]
        if balance.available < asked.cost or not asked.hold:
            return Admitted(True, asked.limit, remaining, reset_us, now_us, None, balance.available)
        held = self._reserved(asked.account_id, asked.cost, _memo(asked.key_id, asked.request_id))
        return Admitted(True, asked.limit, remaining, reset_us, now_us, held)

    def _reserved(self, account_id: str, amount: int, memo: str) -> Reservation:
        held = Reservation(account_id, self.ids.pop(), amount, memo)
        self.balances[account_id].move("reserve", amount)
        self.reserved.append(ledger.entry(account_id, self.at_us, "reserve", amount, held.call_id, memo))
        return held

    def renew(self, asked: Renew) -> Admitted:
        """Void and reserve; where it has expired before, reserve only, if the credits are still there."""
        old = asked.held
        if not self._settled(old, "void", old.call_id) and self.balances[old.account_id].available < old.amount:
            return SETTLED
        held = self._reserved(old.account_id, old.amount, old.memo)
        self.renewed[old.call_id] = held.call_id
        return Admitted(True, 0, 0, 0, 0, held)

    def settle(self, asked: Settle) -> Admitted:
        """Once: what was settled before, or has expired, stays as it is."""
        self._settled(asked.held, asked.kind, self.renewed.get(asked.held.call_id, asked.held.call_id))
        return SETTLED

    def _settled(self, held: Reservation, kind: str, call_id: int) -> bool:
        row = ledger.entry(held.account_id, self.at_us, kind, held.amount, call_id, "")
        if not self.one_by_one:
            self.settled.append(row)
        elif not self.tx.many(ledger.SETTLE, [row]):
            return False
        self.balances[held.account_id].move(kind, held.amount)
        return True

    def keep(self) -> None:
        """Write what has changed."""
        fuller = [(*key, moments.tobytes()) for key, moments in self.buckets.items() if key in self.fuller]
        self.tx.many(_ADD_BUCKET, [row for row in fuller if row[:2] not in self.kept])
        self.tx.many(_SET_BUCKET, [(moments, *key) for *key, moments in fuller if tuple(key) in self.kept])
        self.tx.many(ledger.ADD, self.reserved)
        if self.tx.many(ledger.SETTLE, self.settled) < len(self.settled):
            raise _Settled
        ledger.keep(self.tx, self.balances)
