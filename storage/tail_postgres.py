"""The tail in a PostgreSQL database, which workers on several machines share.

One connection, used by one thread at a time. It has the locks of chains too, so every commit was made under them. After
a lost connection, a lock is kept only if no other process took it in the meantime. A process that has locks uses its
connection every few seconds. If it is frozen, another process ends its connection, and so takes its locks.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from typing import Final

import psycopg
from psycopg.types.numeric import Int8BinaryDumper

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
from chainfolio.storage.tail_database import VALUES_OF_LIST, Rows
from chainfolio.storage.tail_migrations import HEAD, VERSION_TABLE, script

POLL_S: Final = 0.05  # between two attempts to get a lock
BEAT_S: Final = 5.0  # between two statements of a process that has locks
FROZEN_S: Final = 30.0  # without a statement; more than a transaction takes
# The server ends the open transaction of a frozen process. A machine that is gone loses its connection.
_OPTIONS: Final = (
    "synchronous_commit=on",
    "idle_in_transaction_session_timeout=10000",
    "tcp_keepalives_idle=5",
    "tcp_keepalives_interval=2",
    "tcp_keepalives_count=3",
)
_READER: Final = "default_transaction_read_only=on"
_WRITER_LOCK: Final = 0x6366_5F74_6169_6C00  # "cf_tail": one writer at a time
_TIMELINE: Final = (  # empty on a replica
    "SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END"
)
_LIST_ON_POSTGRES: Final = "SELECT json_array_elements_text(CAST(? AS json))"
_TRY_LOCK: Final = "SELECT pg_try_advisory_lock(?)"
_UNLOCK: Final = "SELECT pg_advisory_unlock(?)"
# A row for the connection that has a lock: whether it was frozen, and is ended. Other roles do not see its state.
_END_FROZEN: Final = (
    "SELECT CASE WHEN now() - state_change > make_interval(secs => ?) THEN pg_terminate_backend(pid) ELSE false END "
    "FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND objsubid = 1 AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND (classid::bigint << 32) | objid::bigint = ?"
)
_EPOCH: Final = "SELECT epoch FROM holders WHERE name = ?"
_TAKE: Final = (
    "INSERT INTO holders (name, epoch, holder) VALUES (?, 1, ?) "
    "ON CONFLICT (name) DO UPDATE SET epoch = holders.epoch + 1, holder = excluded.holder RETURNING epoch"
)


log = logging.getLogger("chainfolio.tail")


class PostgresTail:
    """`tail_database.TailDatabase` on PostgreSQL."""

    def __init__(self, url: str, *, reader: bool = False) -> None:
        """Connect to the database, and migrate it first.

        Raises StoreError if that fails or the tables are of a later release.
        """
        self.url, self.address = url, masked(url)
        self._options = (*_OPTIONS, _READER) if reader else _OPTIONS
        self._lock = threading.RLock()
        self._is_writing = False
        self._epochs: dict[str, int] = {}  # of the locks that this process holds
        self._lost: set[str] = set()  # locks that it held, and that another process may have taken
        self._timeline = ""
        self._connection: Connection | None = None
        self._closing = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="tail-locks", daemon=True)
        with translate_errors("tail", url):
            migrate(url, "tail", HEAD, VERSION_TABLE, script)
            self._timeout = TransactionTimeout("tail-watch")
            try:
                self._open_connection()
            except BaseException:  # also if it is cancelled
                self._timeout.close()
                raise
        self._beats.start()

    def read(self, sql: str, *arguments: object) -> Rows:
        """Return the rows of one statement, which is repeated once if the connection is broken."""
        with translate_errors("tail", self.url), self._lock:
            try:
                return self._read(sql, arguments)
            except CONNECTION_LOST:
                if self._is_writing or not self._is_broken():
                    raise
                return self._read(sql, arguments)

    def _read(self, sql: str, arguments: Iterable[object]) -> Rows:
        connection = self._open_connection()
        with nullcontext() if self._is_writing else self._timeout.limit(connection):
            return _execute(connection, sql, arguments).fetchall()

    @contextmanager
    def write(self, chain: str) -> Iterator[_Transaction]:
        """Run the block in one write transaction.

        A connection that breaks before the block is replaced. One that breaks later is an error, because the commit may
        have succeeded: callers continue from what is stored.
        """
        with translate_errors("tail", self.url), self._lock:
            connection = self._begin()
            self._is_writing = True
            try:
                self._check_lost(chain)
                with self._timeout.limit(connection):
                    yield _Transaction(connection)
                    if connection.execute("COMMIT").statusmessage != "COMMIT":
                        raise psycopg.OperationalError("a statement of the transaction had failed")
            except BaseException:  # also if the block is cancelled
                _roll_back(connection)
                raise
            finally:
                self._is_writing = False

    def _begin(self) -> Connection:
        """Return the connection in a new transaction with the writer's lock; a broken one is replaced once."""
        begin = f"BEGIN; SELECT pg_advisory_xact_lock({_WRITER_LOCK})"
        for attempt in range(2):
            connection = self._open_connection()
            try:
                with self._timeout.limit(connection):
                    connection.execute(begin.encode(), prepare=False)
                return connection
            except CONNECTION_LOST:
                _roll_back(connection)  # if only the lock was not free
                if attempt or not self._is_broken():
                    raise
        raise AssertionError("the second attempt returns or raises")

    def _check_lost(self, chain: str) -> None:
        """Raise Locked if this process held a lock of the chain, and another one may have had it since."""
        lost = sorted(name for name in self._lost if chain and name.partition(".")[0] == chain)
        if lost:
            message = f"the lock {lost[0]} was lost with the connection to {self.address}"
            raise Locked("tail", message, remedy="start again: indexing continues from what is stored")

    # --- locks -------------------------------------------------------------------------------------------------------

    @contextmanager
    def hold(self, name: str, subject: str, *, store: str = "tail", wait: bool = False) -> Iterator[None]:
        """Hold an advisory lock of the database during the block.

        Args:
            name: The lock. A process that has it cannot take it again.
            subject: The locked thing, for the error.
            wait: Wait for the lock.

        Raises:
            Locked: Another process has it, and `wait` is False. If that one is frozen, a later attempt gets the lock.
            Locked: The database is away or busy.
        """
        while self._is_held(name, subject) or not self._take(name):
            if not wait:
                remedy, holder = "wait for it to end, or stop it", self._holder(name)
                raise Locked(store, f"{subject} is held by {holder}", remedy=remedy, holder=holder)
            time.sleep(POLL_S)
        try:
            yield
        finally:
            self._release(name)

    def check_locks(self, chain: str) -> None:
        """Raise Locked if a lock of a chain that this process holds was lost, or if the database is away."""
        self.read("SELECT 1")  # a broken connection is replaced, which shows what is lost
        with self._lock:
            self._check_lost(chain)

    def _take(self, name: str) -> bool:
        """Take a lock and count it in `holders`. Return False if a process has it already, also this one."""
        with self._lock:
            if name in self._epochs:
                return False
            try:
                with self.write("") as tx:
                    if not tx.rows(_TRY_LOCK, _key(name))[0][0]:
                        return False
                    holder = f"process {os.getpid()} on {socket.gethostname()}"
                    ((epoch,),) = tx.rows(_TAKE, name, holder)
            except BaseException:  # a rollback does not release it
                self._unlock(name)
                raise
            self._epochs[name] = epoch
            return True

    def _is_held(self, name: str, subject: str) -> bool:
        """Return True if a connection has a lock. End it if its process used it last `FROZEN_S` ago.

        It takes one round trip, and keeps no writer waiting, as an attempt to take the lock does.
        """
        holders = self.read(_END_FROZEN, FROZEN_S, _key(name))
        if (True,) in holders:
            log.warning("%s was held by %s, which is frozen: its connection was ended", subject, self._holder(name))
        return bool(holders)

    def _beat(self) -> None:
        """Use the connection every few seconds while this process has locks, until it is closed."""
        while not self._closing.wait(BEAT_S):
            if self._epochs:
                with suppress(StoreError):  # away: the next write gets the error
                    self.read("SELECT 1")

    def _holder(self, name: str) -> str:
        rows = self.read("SELECT holder FROM holders WHERE name = ?", name)
        return str(rows[0][0]) if rows else "another process"

    def _release(self, name: str) -> None:
        """Release a lock of this process; one that was lost is only forgotten."""
        with self._lock:
            del self._epochs[name]
            if name in self._lost:
                self._lost.discard(name)
            else:
                self._unlock(name)

    def _unlock(self, name: str) -> None:
        """Release a lock of the connection, if there is one: without it, there is no lock."""
        connection = self._connection
        if connection is not None and not connection.closed:
            try:
                _execute(connection, _UNLOCK, (_key(name),))
            except psycopg.Error:
                connection.close()

    # --- the connection ----------------------------------------------------------------------------------------------

    def _is_broken(self) -> bool:
        return self._connection is None or self._connection.closed

    def _open_connection(self) -> Connection:
        """Return the connection. A new one takes the locks of the last one again.

        Raises:
            StoreError: The store was closed: the call of a thread whose task was cancelled.
        """
        if self._connection is None or self._connection.closed:
            if self._closing.is_set():
                raise StoreError("tail", "it was closed")
            assert not self._is_writing, "a transaction does not outlive its connection"
            connection = connect(self.url, *self._options)
            try:
                with self._timeout.limit(connection):
                    self._adopt(connection)
            except BaseException:  # also if it is cancelled
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _adopt(self, connection: Connection) -> None:
        """Prepare a new connection and take this process's locks on it again.

        Those that it cannot have are lost.
        """
        connection.cursor_factory = psycopg.RawCursor
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        ((timeline,),) = _execute(connection, _TIMELINE).fetchall()
        # Another timeline: a replica that took over. It may lack the last commits of the server before.
        is_same = self._timeline in ("", timeline)
        self._timeline = str(timeline)
        for name, epoch in self._epochs.items():
            is_held = is_same and _execute(connection, _TRY_LOCK, (_key(name),)).fetchall()[0][0]
            if not is_held or _execute(connection, _EPOCH, (name,)).fetchall() != [(epoch,)]:
                self._lost.add(name)
                _execute(connection, _UNLOCK, (_key(name),))

    def close(self) -> None:
        """Close the connection. Locks end with it."""
        self._closing.set()
        self._beats.join()
        with self._lock:
            self._timeout.close()
            if self._connection is not None:
                self._connection.close()


class _Transaction:
    """`tail_database.Transaction` on a psycopg connection."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, *arguments: object) -> Rows:
        """Run a statement and return its rows."""
        return _execute(self._connection, sql, arguments).fetchall()

    def run(self, sql: str, *arguments: object) -> int:
        """Run a change and return the number of changed rows."""
        return _execute(self._connection, sql, arguments).rowcount

    def run_many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Run a change once per row of arguments, in one round trip."""
        self._connection.cursor().executemany(_adapted(sql), rows)


def _roll_back(connection: Connection) -> None:
    """End a transaction. A connection that cannot do it is closed, which ends it too."""
    with suppress(psycopg.Error):
        connection.execute("ROLLBACK")
    if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        connection.close()


def _execute(connection: Connection, sql: str, arguments: Iterable[object] = ()) -> psycopg.Cursor[tuple[object, ...]]:
    return connection.execute(_adapted(sql), tuple(arguments), binary=True)


@lru_cache(maxsize=500)
def _adapted(sql: str) -> bytes:
    """Return a statement of the tail in the SQL of PostgreSQL, with `$1` for `?` and `?1`."""
    numbers = iter(range(1, sql.count("?") + 1))
    text = sql.replace(VALUES_OF_LIST, _LIST_ON_POSTGRES)
    return re.sub(r"\?(\d*)", lambda match: f"${match[1] or next(numbers)}", text).encode()


def _key(name: str) -> int:
    """Return the number of a lock. PostgreSQL knows only numbers; 64 bits of a digest do not collide."""
    return int.from_bytes(hashlib.sha256(f"tail {name}".encode()).digest()[:8], signed=True)
