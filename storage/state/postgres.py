"""The state store in PostgreSQL, over psycopg, for several machines.

Blocking connections in a few threads, because the functions that run on them are plain. The meter has its own
thread and connection.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

import psycopg
import sqlalchemy as sa

from chainfolio.chain_settings import masked
from chainfolio.errors import Locked, StoreError
from chainfolio.storage.postgres import (
    CONNECTION_LOST,
    Connection,
    TransactionTimeout,
    connect,
    migrate,
    translate_errors,
)
from chainfolio.storage.state.database import Row, Statement, Time, Transaction, UniqueViolation, Value, Work
from chainfolio.storage.state.migrations import VERSION_TABLE, script
from chainfolio.storage.state.schema import HEAD

T = TypeVar("T")
THREADS: Final = 4
WAIT_S: Final = 4.0  # for one of the threads
_SNAPSHOT: Final = Statement(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
_NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class PostgresDatabase:
    """One database, shared by threads, processes and machines."""

    name = "postgresql"

    def __init__(self, url: str, time: Time | None = None) -> None:
        """Migrate the database, and prepare the threads; connections are opened when they are needed.

        Raises StoreError if the database cannot be reached or has a later revision.
        """
        self.url, self._time = url, time
        self._is_closed = False
        self._local = threading.local()
        self._all: list[Connection] = []
        self._pool = ThreadPoolExecutor(THREADS, "state")
        self._meter = ThreadPoolExecutor(1, "state-meter")
        with translate_errors("state", self.url):
            migrate(url, "state", HEAD, VERSION_TABLE, partial(script, "postgresql"))
        self._timeout = TransactionTimeout("state-watch")  # its thread would outlive a failed migration

    def read(self, work: Work[T]) -> T:
        """Read committed data in this thread, from one consistent state."""

        def reading(tx: Transaction) -> T:
            tx.run(_SNAPSHOT)
            return work(tx)

        return self._on_connection(reading, durable=True)

    def write(self, work: Work[T]) -> T:
        """Read and write in one transaction in this thread. Its commit survives a power failure."""
        return self._on_connection(work, durable=True)

    async def read_async(self, work: Work[T]) -> T:
        """Run `read` in a thread."""
        return await self._run_in_pool(self._pool, lambda: self.read(work))

    async def write_async(self, work: Work[T]) -> T:
        """Run `write` in a thread."""
        return await self._run_in_pool(self._pool, lambda: self.write(work))

    async def meter_transaction(self, work: Work[T]) -> T:
        """Run a small transaction of the meter."""
        return await self._run_in_pool(self._meter, lambda: self._on_connection(work, durable=False))

    async def _run_in_pool(self, pool: ThreadPoolExecutor, call: Callable[[], T]) -> T:
        """Run a call in a thread of a pool.

        Raises:
            Locked: No thread was free for `WAIT_S`. It is raised when one is free; the call did not start.
        """
        queued_s = time.monotonic()

        def call_in_time() -> T:
            """Raise Locked if the call waited too long for a thread."""
            if time.monotonic() - queued_s > WAIT_S:
                raise Locked("state", f"{masked(self.url)} is too slow for what is asked of it", remedy="try again")
            return call()

        return await asyncio.get_running_loop().run_in_executor(pool, call_in_time)

    def close(self) -> None:
        """Close all connections."""
        self._meter.shutdown()
        self._pool.shutdown()
        self._timeout.close()
        self._is_closed = True
        for connection in self._all:
            connection.close()

    def _on_connection(self, work: Work[T], *, durable: bool) -> T:
        """Run the work in a transaction of this thread's connection.

        If the connection was lost before the work began, it is run once more over a new one.
        """
        with translate_errors("state", self.url):
            try:
                return self._attempt(work, durable=durable)
            except CONNECTION_LOST:
                if not self._discard_if_broken():
                    raise
                # The server was restarted, and no work had started there. A connection that breaks during the work is
                # not retried, because its commit may have succeeded.
                return self._attempt(work, durable=durable)

    def _attempt(self, work: Work[T], *, durable: bool) -> T:
        """Run the work in a transaction; not durable: its commit may be lost in a power failure."""
        connection = self._connection()
        try:
            with self._timeout.limit(connection), connection.transaction():
                if not durable:
                    connection.execute("SET LOCAL synchronous_commit = off")
                self._local.begun = True
                return work(_Transaction(connection, self._time))
        except psycopg.errors.UniqueViolation as error:
            raise UniqueViolation(str(error)) from None
        finally:
            self._local.was_begun, self._local.begun = getattr(self._local, "begun", False), False

    def _discard_if_broken(self) -> bool:
        """Discard a broken connection. Return True if no work had started on it."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None or not connection.broken:
            return False
        self._local.connection = None
        self._all.remove(connection)
        return not self._local.was_begun

    def _connection(self) -> Connection:
        """Return the connection of this thread, a new one if it has none or it was closed.

        Raises:
            StoreError: The store was closed.
        """
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None or connection.closed:
            if self._is_closed:
                raise StoreError("state", "it was closed")
            connection = connect(self.url)
            self._local.connection = connection
            self._all.append(connection)
        return connection


class _Transaction:
    """`database.Transaction` on a psycopg connection."""

    __slots__ = ("_cursor", "_time")

    def __init__(self, connection: Connection, time: Time | None) -> None:
        self._cursor, self._time = connection.cursor(), time

    def now_us(self) -> int:
        """Return the server's time, which is the same for all clients."""
        if self._time is not None:
            return self._time()
        ((now_us,),) = self._cursor.execute(_NOW).fetchall()
        return int(now_us)

    def rows(self, statement: Statement, **arguments: Value) -> list[Row]:
        """Return all rows of a statement."""
        return self._cursor.execute(statement.text("postgresql"), arguments).fetchall()

    def run(self, statement: Statement, **arguments: Value) -> int:
        """Run a statement and return the number of changed rows."""
        return self._cursor.execute(statement.text("postgresql"), arguments).rowcount

    def rows_of_each(self, statement: Statement, rows: Sequence[Row]) -> list[Row]:
        """Run a select once per row of parameters, in one batch, and return all results."""
        results: list[Row] = []
        if rows:
            self._cursor.executemany(statement.text("postgresql-rows"), rows, returning=True)
            for _ in self._cursor.results():
                results += self._cursor.fetchall()
        return results

    def run_many(self, statement: Statement, rows: Sequence[Row]) -> int:
        """Run a change once per row of parameters, in one batch, and return the number of changed rows."""
        if rows:
            self._cursor.executemany(statement.text("postgresql-rows"), rows)
        return self._cursor.rowcount if rows else 0
