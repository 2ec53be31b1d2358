"""The state in one SQLite file, over APSW: the SQLite that it brings has no fault where several processes write.

Three connections: one that reads, one whose commits are on the disk before they return, and one for the meter, whose
commits outlive the process but not a power cut, and which never waits for a lock on the event loop.
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
from typing import Any, Final, TypeVar

import apsw

from storage.sqlite import BUSY_MS, connect, said, translated, writing
from storage.state.database import Statement, Time, UniqueViolation, Work
from storage.state.migrations import migrate_sqlite
from storage.state.schema import HEAD
from storage.state.sweep import EPOCH_US, PROCESS_BITS

T = TypeVar("T")
CHECKPOINT_S: Final = 1.0
NEAR_US: Final = 60_000_000
_NEWEST: Final = "SELECT call_id FROM ledger WHERE call_id IS NOT NULL ORDER BY id DESC LIMIT 1"
HOT_CACHE_KB: Final = 32_000  # the buckets of ten thousand keys
_JITTER: Final = random.Random()  # when to try again for a lock: nothing that is kept depends on it


class SqliteDatabase:
    """One file, shared by the threads of this process and by other processes."""

    name = "sqlite"

    def __init__(self, path: Path, time: Time | None = None) -> None:
        self.path = path
        with said("state", path):
            migrate_sqlite(path, HEAD)
            self._reader = connect(path, reader=True)
            self._writer = connect(path)
            self._hot = connect(path, synchronous="NORMAL")
            self._hot.execute(f"PRAGMA cache_size = -{HOT_CACHE_KB}")
            # Both would hold up the event loop: locks are waited for there without it, the journal is emptied apart.
            self._hot.set_busy_timeout(0)
            self._hot.execute("PRAGMA wal_autocheckpoint = 0")
            self._time = time or _steady(self._writer)
        self._read_lock, self._write_lock = threading.Lock(), threading.Lock()
        self._thread = ThreadPoolExecutor(1, "state")
        self._closing = threading.Event()
        self._emptier = threading.Thread(target=self._empty_journal, name="state-journal", daemon=True)
        self._emptier.start()

    def look(self, work: Work[T]) -> T:
        """Read, here and now, what is committed."""
        with said("state", self.path), self._read_lock:
            self._reader.execute("BEGIN")
            try:
                return work(_Transaction(self._reader, self._time))
            finally:
                self._reader.execute("COMMIT")

    def change(self, work: Work[T]) -> T:
        """Read and write in one transaction, here and now; on return it outlives a power cut."""
        with said("state", self.path), self._write_lock, _writing(self._writer, self._time) as transaction:
            return work(transaction)

    async def see(self, work: Work[T]) -> T:
        """`look`: a matter of microseconds, so here and now."""
        return self.look(work)

    async def run(self, work: Work[T]) -> T:
        """`change`, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.change, work)

    async def hot(self, work: Work[T]) -> T:
        """A small transaction of the meter. Another process's lock is waited for without holding up the loop."""
        last_s = time.monotonic() + BUSY_MS / 1000
        while True:
            try:
                with _writing(self._hot, self._time) as transaction:
                    return work(transaction)
            except apsw.BusyError as error:
                if time.monotonic() > last_s:
                    raise translated("state", self.path, error) from error
            except apsw.Error as error:
                raise translated("state", self.path, error) from error
            await asyncio.sleep(_JITTER.uniform(0.0003, 0.002))

    def close(self) -> None:
        """Let go of the file."""
        self._closing.set()
        self._emptier.join()
        self._thread.shutdown()
        with self._read_lock, self._write_lock:
            for connection in (self._hot, self._reader, self._writer):
                connection.close()

    def _empty_journal(self) -> None:
        """Move what is committed from the journal into the file, now and then, so that the journal stays short."""
        with said("state", self.path):
            connection = connect(self.path, synchronous="NORMAL")
        while not self._closing.wait(CHECKPOINT_S):
            try:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except apsw.Error:  # busy, or no space: there is a next time, and who writes is told
                continue
        connection.close()


class _Transaction:
    """What `database.Transaction` says, on an APSW connection."""

    __slots__ = ("_connection", "now_us")

    def __init__(self, connection: apsw.Connection, time: Time) -> None:
        self._connection, self.now_us = connection, time

    def rows(self, statement: Statement, **arguments: Any) -> list[tuple[Any, ...]]:
        """Every row that a statement gives."""
        return self._connection.execute(statement.text("sqlite"), arguments).fetchall()

    def run(self, statement: Statement, **arguments: Any) -> int:
        """How many rows a statement changed."""
        self._connection.execute(statement.text("sqlite"), arguments)
        return self._connection.changes()

    def each(self, statement: Statement, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """What the same select gives for each of the rows."""
        return self._connection.executemany(statement.text("sqlite-rows"), rows).fetchall() if rows else []

    def many(self, statement: Statement, rows: Sequence[tuple[Any, ...]]) -> int:
        """The same change for each of the rows; how many it changed."""
        before = self._connection.total_changes()
        if rows:
            self._connection.executemany(statement.text("sqlite-rows"), rows)
        return self._connection.total_changes() - before


@contextmanager
def _writing(connection: apsw.Connection, time: Time) -> Iterator[_Transaction]:
    """One transaction; UniqueViolation where it would say twice what may be there once."""
    try:
        with writing(connection):
            yield _Transaction(connection, time)
    except apsw.ConstraintError as error:
        if getattr(error, "extendedresult", 0) in _UNIQUE_VIOLATION:
            raise UniqueViolation(str(error)) from None
        raise


def _steady(connection: apsw.Connection) -> Time:
    """The store's time on this machine: what has passed since it was started, which is the same for all its processes
    and which no step of the calendar moves, counted from a moment that the store keeps. That moment is set anew where
    the machine was started since, so that time goes on after the newest call there is."""
    passed_us = time.monotonic_ns() // 1000
    with writing(connection):
        kept: list[Any] = connection.execute("SELECT value FROM marks WHERE name = 'started'").fetchall()
        calls: list[Any] = connection.execute(_NEWEST).fetchall()
        newest_us = max([(call >> PROCESS_BITS) + EPOCH_US for (call,) in calls], default=0)
        if kept and kept[0][0] + passed_us >= newest_us - NEAR_US:
            started_us = int(kept[0][0])
        else:
            started_us = max(time.time_ns() // 1000, newest_us) - passed_us
            connection.execute("INSERT OR REPLACE INTO marks (name, value) VALUES ('started', ?)", (started_us,))
    return lambda: started_us + time.monotonic_ns() // 1000


_UNIQUE_VIOLATION: Final = (
    apsw.SQLITE_CONSTRAINT_UNIQUE,
    apsw.SQLITE_CONSTRAINT_PRIMARYKEY,
    apsw.SQLITE_CONSTRAINT_ROWID,
)
