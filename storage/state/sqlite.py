"""The state store in one SQLite file, over APSW, whose SQLite is safe with several writing processes.

Three connections: one reads; one has durable commits; one is for the meter, whose commits survive a crash of the
process but not a power failure, and which never blocks the event loop to wait for a lock.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import apsw

from chainfolio.storage.sqlite import BUSY_MS, Rows, connect, journal_bytes, translate_error, translate_errors, writing
from chainfolio.storage.state.database import Row, Statement, Time, UniqueViolation, Value, Work
from chainfolio.storage.state.migrations import migrate_sqlite
from chainfolio.storage.state.schema import HEAD
from chainfolio.storage.state.sweep import EPOCH_US, PROCESS_BITS

T = TypeVar("T")
CHECKPOINT_S: Final = 0.25
# While some process writes all the time, a checkpoint that does not block it never ends, and the journal grows. From
# this size on, writers wait for the end of a checkpoint, unless it cannot end because a reader is at an old state.
LONG_JOURNAL_BYTES: Final = 32 * 2**20
TRUNCATE_MS: Final = 50  # such a checkpoint waits so long for the write lock, and again for readers while it has it
NEAR_US: Final = 60_000_000
_NEWEST: Final = "SELECT call_id FROM ledger WHERE call_id IS NOT NULL ORDER BY id DESC LIMIT 1"
HOT_CACHE_KB: Final = 32_000  # the buckets of ten thousand keys
_JITTER: Final = random.Random()  # delays before retries; no stored data depends on it


class SqliteDatabase:
    """One file, shared by the threads of this process and by other processes."""

    name = "sqlite"

    def __init__(self, path: Path, time: Time | None = None) -> None:
        """Migrate and open the file: one connection each for readers, writers and the meter.

        Start checkpoints. Raises StoreError if the file cannot be opened or has a later revision.
        """
        self.path = path
        with translate_errors("state", path):
            migrate_sqlite(path, HEAD)
            self._reader = connect(path, reader=True)
            self._writer = connect(path)
            self._hot = connect(path, synchronous="NORMAL")
            self._hot.execute(f"PRAGMA cache_size = -{HOT_CACHE_KB}")
            # Both would block the event loop: `meter_transaction` waits for locks, another thread makes checkpoints.
            self._hot.set_busy_timeout(0)
            self._hot.execute("PRAGMA wal_autocheckpoint = 0")
            self._time = time or _store_time(self._writer)
        self._read_lock, self._write_lock = threading.Lock(), threading.Lock()
        self._thread = ThreadPoolExecutor(1, "state")
        self._closing = threading.Event()
        self._checkpointer = threading.Thread(target=self._checkpoint_loop, name="state-journal", daemon=True)
        self._checkpointer.start()

    def read(self, work: Work[T]) -> T:
        """Read committed data in this thread, from one consistent state."""
        with translate_errors("state", self.path), self._read_lock:
            self._reader.execute("BEGIN")
            try:
                return work(_Transaction(self._reader, self._time))
            finally:
                self._reader.execute("COMMIT")

    def write(self, work: Work[T]) -> T:
        """Read and write in one transaction in this thread. Its commit survives a power failure."""
        with translate_errors("state", self.path), self._write_lock, _writing(self._writer, self._time) as transaction:
            return work(transaction)

    async def read_async(self, work: Work[T]) -> T:
        """Run `read` in this thread: it takes microseconds."""
        return self.read(work)

    async def write_async(self, work: Work[T]) -> T:
        """Run `write` in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.write, work)

    async def meter_transaction(self, work: Work[T]) -> T:
        """Run a small transaction of the meter, without blocking the event loop.

        Raises:
            StoreError: The file cannot be used, or another process had the lock for `BUSY_MS`.
        """
        last_s = time.monotonic() + BUSY_MS / 1000
        while True:
            try:
                with _writing(self._hot, self._time) as transaction:
                    return work(transaction)
            except apsw.BusyError as error:
                if time.monotonic() > last_s:
                    raise translate_error("state", self.path, error) from error
            except apsw.Error as error:
                raise translate_error("state", self.path, error) from error
            await asyncio.sleep(_JITTER.uniform(0.0003, 0.002))

    def close(self) -> None:
        """Close the file."""
        self._closing.set()
        self._checkpointer.join()
        self._thread.shutdown()
        with self._read_lock, self._write_lock:
            for connection in (self._hot, self._reader, self._writer):
                connection.close()

    def _checkpoint_loop(self) -> None:
        """Move committed data from the journal into the file from time to time, to limit the journal."""
        with translate_errors("state", self.path):
            connection = connect(self.path, synchronous="NORMAL")
        while not self._closing.wait(CHECKPOINT_S):
            try:
                self._checkpoint(connection)
            except apsw.Error:  # busy, or no space: it is tried again, and writers get the error
                continue
        connection.close()

    def _checkpoint(self, connection: apsw.Connection) -> None:
        """Move committed data from the journal into the file; writers wait while a long journal is emptied.

        It is not emptied while a reader needs an old state, such as a backup: writers would wait for the reader.

        Raises:
            apsw.BusyError: Another process makes a checkpoint, or the lock or a reader was not free for TRUNCATE_MS.
        """
        frames, moved = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if frames == moved and journal_bytes(self.path) > LONG_JOURNAL_BYTES:
            connection.set_busy_timeout(TRUNCATE_MS)
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


class _Transaction:
    """`database.Transaction` on an APSW connection."""

    __slots__ = ("_connection", "now_us")

    def __init__(self, connection: apsw.Connection, time: Time) -> None:
        self._connection, self.now_us = connection, time

    def rows(self, statement: Statement, **arguments: Value) -> list[Row]:
        """Return all rows of a statement."""
        return self._connection.execute(statement.text("sqlite"), arguments).fetchall()

    def run(self, statement: Statement, **arguments: Value) -> int:
        """Run a statement and return the number of changed rows."""
        self._connection.execute(statement.text("sqlite"), arguments)
        return self._connection.changes()

    def rows_of_each(self, statement: Statement, rows: Sequence[Row]) -> list[Row]:
        """Run a select once per row of parameters and return all results."""
        return self._connection.executemany(statement.text("sqlite-rows"), rows).fetchall() if rows else []

    def run_many(self, statement: Statement, rows: Sequence[Row]) -> int:
        """Run a change once per row of parameters, and return the number of changed rows."""
        before = self._connection.total_changes()
        if rows:
            self._connection.executemany(statement.text("sqlite-rows"), rows)
        return self._connection.total_changes() - before


@contextmanager
def _writing(connection: apsw.Connection, time: Time) -> Iterator[_Transaction]:
    """Run the block in one transaction. Raises UniqueViolation for a second row with a unique key."""
    try:
        with writing(connection):
            yield _Transaction(connection, time)
    except apsw.ConstraintError as error:
        if getattr(error, "extendedresult", 0) in _UNIQUE_VIOLATION:
            raise UniqueViolation(str(error)) from None
        raise


def _store_time(connection: apsw.Connection) -> Time:
    """Return the store's time on this machine: the time since boot, counted from a stored start.

    The time since boot is the same for all processes, and independent of clock changes. If the machine was restarted,
    a new start is stored, such that the time continues after the newest call.
    """
    passed_us = time.monotonic_ns() // 1000
    with writing(connection):
        stored: Rows = connection.execute("SELECT value FROM marks WHERE name = 'started'").fetchall()
        calls: Rows = connection.execute(_NEWEST).fetchall()
        newest_us = max([(call >> PROCESS_BITS) + EPOCH_US for (call,) in calls], default=0)
        if stored and stored[0][0] + passed_us >= newest_us - NEAR_US:
            started_us = int(stored[0][0])
        else:
            started_us = max(time.time_ns() // 1000, newest_us) - passed_us
            connection.execute("INSERT OR REPLACE INTO marks (name, value) VALUES ('started', ?)", (started_us,))
    return lambda: started_us + time.monotonic_ns() // 1000


_UNIQUE_VIOLATION: Final = (
    apsw.SQLITE_CONSTRAINT_UNIQUE,
    apsw.SQLITE_CONSTRAINT_PRIMARYKEY,
    apsw.SQLITE_CONSTRAINT_ROWID,
)
