"""The meter: lets requests in under their rate, reserves their credits and settles them, many at a time.

What arrives while a transaction runs goes into the next one together, so the more there is to do the cheaper it gets.
Rates are exact: a bucket keeps the moment of every request that it let in, and lets one more in only if fewer than
its limit lie within the last minute, whatever process they came through.
"""

from __future__ import annotations

import asyncio
import random
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
from storage.state import accounts, bookmarks, idempotency, ledger, schema
from storage.state.database import Database, Statement, Taken, Transaction, argument, literal, one

WINDOW_US: Final = 60_000_000
MANY: Final = 512  # operations in one transaction: others wait for its lock
ROUNDS: Final = 3
SOON_S: Final = 0.005
SWEEP_S: Final = 5.0
SWEEP: Final = "sweep"  # the task that expires reservations
FORGET_US: Final = 3600 * 1_000_000
_EPOCH_US: Final = 1_735_689_600_000_000  # 2025-01-01: the ids of calls fit 63 bits for 17 years
_LANE_BITS: Final = 14

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
_MARKS, _LEDGER = schema.marks, schema.ledger
_MARK = Statement(sa.select(_MARKS.c.value).where(_MARKS.c.name == literal("settled")).with_for_update())
_SET_MARK = Statement(_MARKS.update().where(_MARKS.c.name == literal("settled")).values(value=argument("new_value")))
_OLD = Statement(
    sa.select(sa.func.max(_LEDGER.c.id)).where(_LEDGER.c.id > argument("mark"), _LEDGER.c.at_us <= argument("late"))
)
_OPEN = Statement(
    sa.select(_LEDGER.c.id, _LEDGER.c.at_us, _LEDGER.c.account_id, _LEDGER.c.call_id, _LEDGER.c.amount)
    .where(_LEDGER.c.id > argument("mark"), ledger.OPEN)
    .order_by(_LEDGER.c.id)
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


class Held(msgspec.Struct, frozen=True):
    """Credits that are reserved for a call."""

    account_id: str
    call_id: int
    amount: int


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
    held: Held | None = None
    available: int | None = None
    stale: bool = False


SETTLED: Final = Admitted(True, 0, 0, 0, 0)  # what settling is answered: nothing


class Settle(msgspec.Struct, frozen=True):
    """Post or void what is held for a call; again, or after it expired, changes nothing."""

    held: Held
    kind: str


Operation = Admit | Settle
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
    _last_id: int = 0
    _forgot_us: int = 0

    async def admit(self, asked: Admit) -> Admitted:
        """Let a request in, or not."""
        return await self._do(asked)

    async def settle(self, held: Held, kind: str) -> None:
        """Post or void; on return it is in the ledger."""
        await self._do(Settle(held, kind))

    def settle_soon(self, held: Held, kind: str) -> None:
        """Post or void without waiting: with the next request that comes, or in a moment. If it never comes to it, the
        reservation expires and nobody has paid."""
        self._waiting.append((Settle(held, kind), None))
        if self._running is None and self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON_S, self._start)

    def bill(self, account_id: str, key_id: str, amount: int, request_id: str) -> ledger.Bill:
        """What a change is paid with, in the transaction that makes it; every attempt needs its own."""
        (call_id,) = self._ids(1)
        return ledger.Bill(account_id, call_id, amount, self.clock.now_us(), _memo(key_id, request_id))

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
                batch, self._waiting = self._waiting[:MANY], self._waiting[MANY:]
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
            if future is None:
                continue
            if not future.done():
                future.set_result(result)
            elif result.held is not None:
                # Who asked has gone: nobody else knows of this reservation.
                self.settle_soon(result.held, "void")

    async def _applied(self, operations: Sequence[Operation]) -> list[Admitted]:
        one_by_one = False
        for _ in range(4):
            try:
                return await self.database.hot(lambda tx: self._apply(tx, operations, one_by_one))  # noqa: B023
            except Taken:  # another process made the same bucket or the same id in the same microsecond
                continue
            except _Settled:
                one_by_one = True
        raise StoreError("state", "the meter's ids clash", cure="check the clocks of the machines")

    def _apply(self, tx: Transaction, operations: Sequence[Operation], one_by_one: bool) -> list[Admitted]:
        round = _Round(tx, self.clock.now_us(), self._ids(len(operations)), one_by_one)
        round.load(operations)
        results = [round.admit(o) if isinstance(o, Admit) else round.settle(o) for o in operations]
        round.keep()
        return results

    def _ids(self, count: int) -> list[int]:
        """Ids for calls, growing: SQLite appends them instead of looking for their place."""
        lane = self._last_id & (2**_LANE_BITS - 1) or self.random.randrange(1, 2**_LANE_BITS)
        first = max(self.clock.now_us() - _EPOCH_US, (self._last_id >> _LANE_BITS) + 1)
        ids = [(at << _LANE_BITS) | lane for at in range(first, first + count)]
        self._last_id = ids[-1]
        return ids

    def _swept(self, tx: Transaction) -> None:
        now_us = self.clock.now_us()
        expire(tx, now_us, self.hold_us)
        if now_us - self._forgot_us >= FORGET_US:  # a look at every row that is kept
            idempotency.forget(tx, now_us)
            bookmarks.forget(tx, now_us)
            self._forgot_us = now_us

    async def _sweep(self, task: Task) -> None:
        """Expire what the dead have reserved, and forget answers that nobody will ask for again."""
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.database.run(self._swept)
            task.progressed()


def _memo(key_id: str, request_id: str) -> str:
    return f"{key_id} {request_id}".rstrip()


class _Settled(Exception):
    """Something of the batch had been settled before: which, is seen one by one."""


class _Round:
    """One transaction of the meter: what it read, changes in memory, and writes at its end."""

    def __init__(self, tx: Transaction, now_us: int, ids: list[int], one_by_one: bool) -> None:
        self.tx, self.now_us, self.ids, self.one_by_one = tx, now_us, ids, one_by_one
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
        paying.update([o.held.account_id for o in operations if isinstance(o, Settle)])
        self.balances = ledger.balances(self.tx, paying)

    def admit(self, asked: Admit) -> Admitted:
        """The rate first: who comes too often is not asked for credits."""
        remaining, reset_us, now_us = 0, self.now_us, self.now_us
        if asked.as_of is not None and asked.as_of != self.changes:
            return Admitted(False, asked.limit, 0, reset_us, now_us, stale=True)
        if asked.limit:
            key = (asked.key_id, asked.bucket)
            moments = self.buckets[key]
            # A clock that went back must not make room: time stands still until it has caught up.
            now_us = max(now_us, moments[-1] if moments else 0)
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
        held = Held(asked.account_id, self.ids.pop(), asked.cost)
        balance.move("reserve", held.amount)
        memo = _memo(asked.key_id, asked.request_id)
        self.reserved.append(ledger.entry(held.account_id, self.now_us, "reserve", held.amount, held.call_id, memo))
        return Admitted(True, asked.limit, remaining, reset_us, now_us, held)

    def settle(self, asked: Settle) -> Admitted:
        """Once: what was settled before, or has expired, stays as it is."""
        held = asked.held
        row = ledger.entry(held.account_id, self.now_us, asked.kind, held.amount, held.call_id, "")
        if not self.one_by_one:
            self.settled.append(row)
        elif not self.tx.many(ledger.SETTLE, [row]):
            return SETTLED
        self.balances[held.account_id].move(asked.kind, held.amount)
        return SETTLED

    def keep(self) -> None:
        """Write what has changed."""
        fuller = [(*key, moments.tobytes()) for key, moments in self.buckets.items() if key in self.fuller]
        self.tx.many(_ADD_BUCKET, [row for row in fuller if row[:2] not in self.kept])
        self.tx.many(_SET_BUCKET, [(moments, *key) for *key, moments in fuller if tuple(key) in self.kept])
        self.tx.many(ledger.ADD, self.reserved)
        if self.tx.many(ledger.SETTLE, self.settled) < len(self.settled):
            raise _Settled
        ledger.keep(self.tx, self.balances)


def expire(tx: Transaction, now_us: int, hold_us: int) -> int:
    """Give back what was reserved for calls that nobody settled in time; how many.

    Everything up to a mark in the ledger is settled, so that only what came after it is looked at. The mark stays
    behind what is younger than `hold_us`: a row with a smaller number may still be on its way into the ledger.
    """
    row = one(tx.rows(_MARK))
    assert row is not None, "the mark is made with the tables"
    mark, late_us = row[0], now_us - hold_us
    waiting = tx.rows(_OPEN, mark=mark)
    late = [found for found in waiting if found[1] <= late_us]
    if late:
        round = _Round(tx, now_us, [], one_by_one=True)
        operations = [Settle(Held(account_id, call_id, amount), "expire") for *_, account_id, call_id, amount in late]
        round.load(operations)
        for operation in operations:
            round.settle(operation)
        round.keep()
    still = min((found[0] for found in waiting if found[1] > late_us), default=None)
    ((old,),) = tx.rows(_OLD, mark=mark, late=late_us)
    if old is not None:
        tx.run(_SET_MARK, new_value=old if still is None else min(old, still - 1))
    return len(late)
