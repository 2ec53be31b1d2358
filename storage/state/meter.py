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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa
import structlog

from chainfolio.errors import StoreError
from chainfolio.seams import Clock
from storage.state import ledger, schema
from storage.state.database import Database, Statement, Taken, Transaction, argument, one

WINDOW_US: Final = 60_000_000
MANY: Final = 512  # operations in one transaction: others wait for its lock
SWEEP_S: Final = 5.0
_EPOCH_US: Final = 1_735_689_600_000_000  # 2025-01-01: the ids of calls fit 63 bits for 17 years
_LANE_BITS: Final = 14

log = structlog.stdlib.get_logger("chainfolio.state")

_BUCKETS, _RESERVATIONS = schema.buckets, schema.reservations
_BUCKET = Statement(
    sa.select(_BUCKETS.c.moments)
    .where(_BUCKETS.c.key_id == argument("key_id"), _BUCKETS.c.name == argument("name"))
    .with_for_update()
)
_ADD_BUCKET = Statement(_BUCKETS.insert())
_SET_BUCKET = Statement(
    _BUCKETS.update()
    .where(_BUCKETS.c.key_id == argument("of_key"), _BUCKETS.c.name == argument("of_name"))
    .values(moments=argument("new_moments"))
)
_HOLD = Statement(_RESERVATIONS.insert())
_RELEASE = Statement(
    _RESERVATIONS.delete().where(_RESERVATIONS.c.call_id == argument("call")).returning(_RESERVATIONS.c.amount)
)
_EXPIRED = Statement(
    sa.select(_RESERVATIONS.c.call_id, _RESERVATIONS.c.account_id)
    .where(_RESERVATIONS.c.expires_us <= argument("now"))
    .order_by(_RESERVATIONS.c.call_id)
    .suffix_with(sa.text(f"LIMIT {MANY}"))
)


@dataclass(frozen=True, slots=True)
class Admit:
    """May a request of this key come in, and are its credits there? `limit` 0 asks for no rate, `cost` 0 for none."""

    account_id: str
    key_id: str
    bucket: str
    limit: int
    cost: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """What became of it. `remaining` of the `limit` can still come, `reset_us` is when one more than that could.

    `call_id` is there where credits were reserved; where they were not, `available` says how many there are.
    """

    let_in: bool
    limit: int
    remaining: int
    reset_us: int
    now_us: int
    call_id: int | None = None
    available: int | None = None


@dataclass(frozen=True, slots=True)
class Settle:
    """Post or void what was reserved for a call; again, or after it expired, changes nothing."""

    account_id: str
    call_id: int
    kind: str


Operation = Admit | Settle


@dataclass(slots=True)
class Meter:
    """The meter of one process. `hold_us` is after how long a reservation that nobody settles expires."""

    database: Database
    clock: Clock
    random: random.Random
    hold_us: int
    _waiting: list[tuple[Operation, asyncio.Future[Admitted | None]]] = field(default_factory=list)
    _running: asyncio.Task[None] | None = None
    _sweeper: asyncio.Task[None] | None = None
    _last_id: int = 0

    async def admit(self, asked: Admit) -> Admitted:
        """Let a request in, or not."""
        found = await self._do(asked)
        assert found is not None, "an Admit is answered"
        return found

    async def settle(self, account_id: str, call_id: int, kind: str) -> None:
        """Post or void; on return it is in the ledger."""
        await self._do(Settle(account_id, call_id, kind))

    def settle_soon(self, account_id: str, call_id: int, kind: str) -> None:
        """Post or void without waiting. If it never comes to it, the reservation expires and nobody has paid."""
        self._do(Settle(account_id, call_id, kind)).add_done_callback(_told)

    async def close(self) -> None:
        """Do what is waiting, and stop."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        while self._running is not None:
            await asyncio.wait([self._running])

    def _do(self, operation: Operation) -> asyncio.Future[Admitted | None]:
        future: asyncio.Future[Admitted | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((operation, future))
        if self._running is None:
            self._running = asyncio.create_task(self._drain())
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep())
        return future

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)  # whoever is ready in this round of the loop comes along
                batch, self._waiting = self._waiting[:MANY], self._waiting[MANY:]
                await self._batch(batch)
        finally:
            self._running = None
            if self._waiting:
                self._running = asyncio.create_task(self._drain())

    async def _batch(self, batch: Sequence[tuple[Operation, asyncio.Future[Admitted | None]]]) -> None:
        operations = [operation for operation, _ in batch]
        try:
            results = await self._applied(operations)
        except Exception as error:  # all of the batch failed alike, and nothing of it was done
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (operation, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
            elif result is not None and result.call_id is not None:
                # Who asked has gone: nobody else knows of this reservation.
                self.settle_soon(operation.account_id, result.call_id, "void")

    async def _applied(self, operations: Sequence[Operation]) -> list[Admitted | None]:
        for _ in range(3):
            try:
                return await self.database.hot(lambda tx: self._apply(tx, operations))
            except Taken:  # another process made the same bucket or the same id in the same microsecond
                continue
        raise StoreError("state", "the meter's ids clash", cure="check the clocks of the machines")

    def _apply(self, tx: Transaction, operations: Sequence[Operation]) -> list[Admitted | None]:
        round = _Round(tx, self.clock.now_us(), self.hold_us, self._ids(len(operations)))
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

    async def _sweep(self) -> None:
        """Expire what the dead have reserved."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.database.hot(lambda tx: expire(tx, self.clock.now_us()))
            except StoreError as error:
                log.warning("sweep failed", reason=error.message)


class _Round:
    """One transaction of the meter: what it read, changes in memory, and writes at its end."""

    def __init__(self, tx: Transaction, now_us: int, hold_us: int, ids: list[int]) -> None:
        self.tx, self.now_us, self.hold_us = tx, now_us, hold_us
        self.ids = ids
        self.buckets: dict[tuple[str, str], array[int]] = {}
        self.new_buckets: set[tuple[str, str]] = set()
        self.balances: dict[str, ledger.Balance] = {}
        self.rows: list[dict[str, object]] = []
        self.held: list[dict[str, object]] = []

    def load(self, operations: Sequence[Operation]) -> None:
        """Read everything, in one order for all processes: whoever locks in order cannot lock in a circle."""
        admits = [operation for operation in operations if isinstance(operation, Admit)]
        for key in sorted({(o.key_id, o.bucket) for o in admits if o.limit}):
            row = one(self.tx.rows(_BUCKET, key_id=key[0], name=key[1]))
            self.buckets[key] = array("q", row[0] if row else b"")
            if row is None:
                self.new_buckets.add(key)
        paying = {o.account_id for o in operations if isinstance(o, Settle) or o.cost}
        for account_id in sorted(paying):
            self.balances[account_id] = ledger.balance(self.tx, account_id)

    def admit(self, asked: Admit) -> Admitted:
        """The rate first: who comes too often is not asked for credits."""
        remaining, reset_us, now_us = 0, self.now_us, self.now_us
        if asked.limit:
            moments = self.buckets[asked.key_id, asked.bucket]
            # A clock that went back must not make room: time stands still until it has caught up.
            now_us = max(now_us, moments[-1] if moments else 0)
            del moments[: bisect_right(moments, now_us - WINDOW_US)]
            if len(moments) >= asked.limit:
                reset_us = moments[len(moments) - asked.limit] + WINDOW_US
                return Admitted(False, asked.limit, 0, reset_us, now_us)
            moments.append(now_us)
            remaining, reset_us = asked.limit - len(moments), moments[0] + WINDOW_US
        if not asked.cost:
            return Admitted(True, asked.limit, remaining, reset_us, now_us)
        balance = self.balances[asked.account_id]
        if balance.available < asked.cost:
            return Admitted(True, asked.limit, remaining, reset_us, now_us, None, balance.available)
        call_id = self.ids.pop()
        self._move(asked.account_id, "reserve", asked.cost, call_id, asked.key_id)
        expires_us = self.now_us + self.hold_us
        self.held.append(
            {"call_id": call_id, "account_id": asked.account_id, "amount": asked.cost, "expires_us": expires_us}
        )
        return Admitted(True, asked.limit, remaining, reset_us, now_us, call_id)

    def settle(self, asked: Settle) -> Admitted | None:
        """Once: what is no longer reserved was settled before, or has expired."""
        row = one(self.tx.rows(_RELEASE, call=asked.call_id))
        if row is not None:
            self._move(asked.account_id, asked.kind, row[0], asked.call_id, "")
        return None

    def keep(self) -> None:
        """Write what has changed."""
        for key, moments in self.buckets.items():
            if key in self.new_buckets:
                self.tx.run(_ADD_BUCKET, key_id=key[0], name=key[1], moments=moments.tobytes())
            else:
                self.tx.run(_SET_BUCKET, of_key=key[0], of_name=key[1], new_moments=moments.tobytes())
        if self.rows:
            self.tx.many(ledger.ADD, self.rows)
            self.tx.many(_HOLD, self.held)
            for account_id in {row["account_id"] for row in self.rows}:
                ledger.keep(self.tx, str(account_id), self.balances[str(account_id)])

    def _move(self, account_id: str, kind: str, amount: int, call_id: int, memo: str) -> None:
        self.rows.append(ledger.entry(account_id, self.now_us, kind, amount, call_id, memo))
        self.balances[account_id].move(kind, amount)


def expire(tx: Transaction, now_us: int) -> int:
    """Void what was reserved for calls that nobody settled in time; how many."""
    late = tx.rows(_EXPIRED, now=now_us)
    if late:
        operations = [Settle(account_id, call_id, "expire") for call_id, account_id in late]
        round = _Round(tx, now_us, 0, [])
        round.load(operations)
        for operation in operations:
            round.settle(operation)
        round.keep()
    return len(late)


def _told(future: asyncio.Future[Admitted | None]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        log.warning("not settled", reason=str(error), then="the reservation expires")
