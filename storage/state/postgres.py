"""The state in PostgreSQL, over psycopg: for several machines, and for who has one already.

Blocking connections in a few threads, because the functions that run on them are plain; one thread and connection of
its own is the meter's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg
import sqlalchemy as sa

from chainfolio.chain_settings import masked
from chainfolio.errors import Busy, StorageFull, StoreError
from storage.state.database import Statement, Time, Transaction, UniqueViolation, Work
from storage.state.migrations import migrate_postgres
from storage.state.schema import HEAD

T = TypeVar("T")
THREADS: Final = 4
# A server that is there and says nothing answers no time-out of its own: the client keeps these.
CONNECT_S: Final = 4
WAIT_S: Final = 4.0  # for one of the threads
CALL_S: Final = 10.0  # for a transaction, from its begin to its commit
LOCK_MS: Final = 5000
STATEMENT_MS: Final = 8000
TCP_MS: Final = 8000
_ONE_MOMENT: Final = Statement(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
_NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_LOST: Final = (psycopg.OperationalError, psycopg.InterfaceError)
_AGAIN: Final = ("40001", "40P01", "55P03", "57014")  # serialisation, deadlock, lock or statement timed out


class PostgresDatabase:
    """One database, shared by threads, processes and machines."""

    name = "postgresql"

    def __init__(self, url: str, time: Time | None = None) -> None:
        self.url, self._time = url, time
        self._local = threading.local()
        self._all: list[psycopg.Connection[Any]] = []
        self._pool = ThreadPoolExecutor(THREADS, "state")
        self._meter = ThreadPoolExecutor(1, "state-meter")
        self._watch = Watch()
        with self._said():
            migrate_postgres(url, HEAD)

    def look(self, work: Work[T]) -> T:
        """Read, here and now, what is committed."""

        def reading(tx: Transaction) -> T:
            tx.run(_ONE_MOMENT)
            return work(tx)

        return self._on_connection(reading, durable=True)

    def change(self, work: Work[T]) -> T:
        """Read and write in one transaction, here and now; on return it outlives a power cut."""
        return self._on_connection(work, durable=True)

    async def see(self, work: Work[T]) -> T:
        """`look`, off the event loop."""
        return await self._queued(self._pool, lambda: self.look(work))

    async def run(self, work: Work[T]) -> T:
        """`change`, off the event loop."""
        return await self._queued(self._pool, lambda: self.change(work))

    async def hot(self, work: Work[T]) -> T:
        """A small transaction of the meter."""
        return await self._queued(self._meter, lambda: self._on_connection(work, durable=False))

    async def _queued(self, pool: ThreadPoolExecutor, call: Callable[[], T]) -> T:
        """Run in a thread of a pool; Busy, with nothing begun, where none was free in time."""
        asked_s = time.monotonic()

        def run() -> T:
            if time.monotonic() - asked_s > WAIT_S:
                raise Busy("state", f"{masked(self.url)} is too slow for what is asked of it", remedy="try again")
            return call()

        return await asyncio.get_running_loop().run_in_executor(pool, run)

    def close(self) -> None:
        """Let go of the database."""
        self._meter.shutdown()
        self._pool.shutdown()
        self._watch.close()
        for connection in self._all:
            connection.close()

    def _on_connection(self, work: Work[T], *, durable: bool) -> T:
        with self._said():
            try:
                return self._once(work, durable=durable)
            except _LOST:
                if not self._forget_if_broken():
                    raise
                # The server was restarted since: nothing of this work was begun there. A connection that breaks
                # half-way is not tried again, for its commit may have been done.
                return self._once(work, durable=durable)

    def _once(self, work: Work[T], *, durable: bool) -> T:
        connection = self._connection()
        try:
            with self._watch.over(connection), connection.transaction():
                if not durable:
                    connection.execute("SET LOCAL synchronous_commit = off")
                self._local.begun = True
                return work(_Transaction(connection, self._time))
        except psycopg.errors.UniqueViolation as error:
            raise UniqueViolation(str(error)) from None
        finally:
            self._local.was_begun, self._local.begun = getattr(self._local, "begun", False), False

    def _forget_if_broken(self) -> bool:
        """Whether the connection was found dead before any work was done on it."""
        connection: psycopg.Connection[Any] | None = getattr(self._local, "connection", None)
        if connection is None or not connection.broken:
            return False
        self._local.connection = None
        self._all.remove(connection)
        return not self._local.was_begun

    def _connection(self) -> psycopg.Connection[Any]:
        connection: psycopg.Connection[Any] | None = getattr(self._local, "connection", None)
        if connection is None or connection.closed:
            connection = psycopg.connect(
                self.url, autocommit=True, connect_timeout=CONNECT_S, application_name="chainfolio",
                options=f"-c lock_timeout={LOCK_MS} -c statement_timeout={STATEMENT_MS}",
                tcp_user_timeout=TCP_MS, keepalives_idle=5, keepalives_interval=2, keepalives_count=3,
            )  # fmt: skip
            self._local.connection = connection
            self._all.append(connection)
        return connection

    @contextmanager
    def _said(self) -> Iterator[None]:
        """psycopg's errors as the error tree names them; none repeats the address, which holds a password."""
        try:
            yield
        except psycopg.Error as error:
            raise self._error(error) from None

    def _error(self, error: psycopg.Error) -> StoreError:
        where = masked(self.url)
        if isinstance(error, psycopg.errors.DiskFull):
            return StorageFull("state")
        if error.sqlstate in _AGAIN:
            return Busy("state", f"{where} is busy", remedy="try again")
        if isinstance(error, psycopg.errors.InvalidPassword | psycopg.errors.InvalidAuthorizationSpecification):
            return StoreError("state", f"{where} refuses the user or the password", remedy="check state.url")
        if isinstance(error, _LOST):
            return Busy("state", f"{where} cannot be reached", remedy="check that PostgreSQL runs, and state.url")
        return StoreError("state", f"{where}: {type(error).__name__} {error.sqlstate}")


class Watch:
    """Breaks off connections whose transaction takes longer than `CALL_S`, so that whoever waits for it gets an error.

    One thread for all: a timer for each transaction would cost more than the transaction.
    """

    def __init__(self) -> None:
        self._until_s: dict[psycopg.Connection[Any], float] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="state-watch", daemon=True)
        self._thread.start()

    @contextmanager
    def over(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """Watch over a connection for as long as the block lasts."""
        self._until_s[connection] = time.monotonic() + CALL_S
        try:
            yield
        finally:
            self._until_s.pop(connection, None)

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(CALL_S / 20):
            for connection, until_s in list(self._until_s.items()):
                if time.monotonic() > until_s:
                    self._until_s.pop(connection, None)
                    _break_off(connection)


def _break_off(connection: psycopg.Connection[Any]) -> None:
    """End both directions of a connection: the thread that waits for it sees its end."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.pgconn.socket)) as ours:
        ours.shutdown(socket.SHUT_RDWR)


class _Transaction:
    """What `database.Transaction` says, on a psycopg connection."""

    __slots__ = ("_cursor", "_time")

    def __init__(self, connection: psycopg.Connection[Any], time: Time | None) -> None:
        self._cursor, self._time = connection.cursor(), time

    def now_us(self) -> int:
        """The time of the server, which is one for all its clients."""
        if self._time is not None:
            return self._time()
        ((now_us,),) = self._cursor.execute(_NOW).fetchall()
        return int(now_us)

    def rows(self, statement: Statement, **arguments: Any) -> list[tuple[Any, ...]]:
        """Every row that a statement gives."""
        return self._cursor.execute(statement.text("postgresql"), arguments).fetchall()

    def run(self, statement: Statement, **arguments: Any) -> int:
        """How many rows a statement changed."""
        return self._cursor.execute(statement.text("postgresql"), arguments).rowcount

    def each(self, statement: Statement, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """What the same select gives for each of the rows, asked for all at once."""
        found: list[tuple[Any, ...]] = []
        if rows:
            self._cursor.executemany(statement.text("postgresql-rows"), rows, returning=True)
            for _ in self._cursor.results():
                found += self._cursor.fetchall()
        return found

    def many(self, statement: Statement, rows: Sequence[tuple[Any, ...]]) -> int:
        """The same change for each of the rows, sent all at once; how many it changed."""
        if rows:
            self._cursor.executemany(statement.text("postgresql-rows"), rows)
        return self._cursor.rowcount if rows else 0
