"""Connections, time limits, migrations and error translation of both PostgreSQL stores, over psycopg."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg

from chainfolio.chain_settings import masked
from chainfolio.errors import Locked, StorageFull, StoreError
from chainfolio.storage.migrations import needs_migration

if TYPE_CHECKING:
    from chainfolio.storage.sqlite import Rows

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
# Time limits of the client: a server that does not respond cannot enforce its own.
CONNECT_S: Final = 4
CALL_S: Final = 10.0  # for a transaction, from its begin to its commit
LOCK_MS: Final = 5000
STATEMENT_MS: Final = 8000
TCP_MS: Final = 8000
CONNECTION_LOST: Final = (psycopg.OperationalError, psycopg.InterfaceError)
# Serialisation, deadlock; a lock, a statement or a pause in a transaction took too long.
_RETRYABLE: Final = ("40001", "40P01", "55P03", "57014", "25P03")
_MIGRATION_LOCK: Final = 0x6368_6169_6E66_6F6C  # "chainfol": one upgrade at a time


def connect(url: str, *options: str) -> Connection:
    """Open a connection without implicit transactions, with limits for locks, statements and the network.

    Errors are those of psycopg: wrap the call in `translate_errors`.

    Args:
        options: Further parameters of the server for this connection, such as `synchronous_commit=on`.
    """
    limits = (f"lock_timeout={LOCK_MS}", f"statement_timeout={STATEMENT_MS}")
    return psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=CONNECT_S,
        application_name="chainfolio",
        options=" ".join(f"-c {option}" for option in (*limits, *options)),
        tcp_user_timeout=TCP_MS,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
    )


@contextmanager
def translate_errors(store: str, url: str) -> Iterator[None]:
    """Raise errors of psycopg as StoreError and its subclasses, without the address's password."""
    try:
        yield
    except psycopg.Error as error:
        raise _typed_error(store, masked(url), error) from None


def _typed_error(store: str, address: str, error: psycopg.Error) -> StoreError:
    """Return the typed error of a PostgreSQL error: Locked if a later attempt may succeed.

    StorageFull if the disk is full, else StoreError.
    """
    if isinstance(error, psycopg.errors.DiskFull):
        return StorageFull(store)
    if error.sqlstate in _RETRYABLE:
        return Locked(store, f"{address} is busy", remedy="try again")
    if isinstance(error, psycopg.errors.InvalidPassword | psycopg.errors.InvalidAuthorizationSpecification):
        return StoreError(store, f"{address} refuses the user or the password", remedy=f"check {store}.url")
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        remedy = f"let {store}.url name the primary server, which can be written"
        return StoreError(store, f"{address} is read-only", remedy=remedy)
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        remedy = "let the user own the database, or grant it CREATE and USAGE on its schema"
        return StoreError(store, f"{address} does not let the user do this", remedy=remedy)
    if isinstance(error, CONNECTION_LOST):
        remedy = f"check that PostgreSQL runs, and {store}.url"
        return Locked(store, f"{address} cannot be reached", remedy=remedy)
    return StoreError(store, f"{address}: {type(error).__name__} {error.sqlstate}")


class TransactionTimeout:
    """Closes connections whose transaction takes longer than `CALL_S`, so that its caller gets an error.

    One thread serves all: a timer per transaction would cost more than the transaction.
    """

    def __init__(self, name: str) -> None:
        self._until_s: dict[Connection, float] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @contextmanager
    def limit(self, connection: Connection) -> Iterator[None]:
        """Limit the duration of the block, which uses a connection."""
        self._until_s[connection] = time.monotonic() + CALL_S
        try:
            yield
        finally:
            self._until_s.pop(connection, None)

    def close(self) -> None:
        """Stop the thread."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        """Break off late connections until it is closed."""
        while not self._closing.wait(CALL_S / 20):
            for connection, until_s in list(self._until_s.items()):
                if time.monotonic() > until_s:
                    self._until_s.pop(connection, None)
                    _break_off(connection)


def _break_off(connection: Connection) -> None:
    """Shut down both directions of a connection, so that the waiting thread gets an error."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.pgconn.socket)) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)


def migrate(url: str, store: str, head: str, version_table: str, script: Callable[[str | None], str]) -> None:
    """Migrate the tables of a store to the revision `head`. Safe with several processes.

    Nothing happens if it has that revision.

    Args:
        version_table: The table with the store's revision.
        script: Returns the SQL of all migrations after a revision; None: none yet.

    Raises:
        StoreError: The database has a later revision.
    """
    with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_S + 1) as connection:
        if _revision(connection, version_table) == head:
            return
        connection.execute("SELECT pg_advisory_lock(%s)", [_MIGRATION_LOCK])
        current = _revision(connection, version_table)
        if needs_migration(store, current, head):
            with connection.transaction():
                connection.execute(script(current).encode())


def _revision(connection: Connection, version_table: str) -> str | None:
    """Return the stored revision of a schema, None for an empty database."""
    table = connection.execute("SELECT to_regclass(%s)", [version_table]).fetchone()
    rows: Rows = (
        connection.execute(f"SELECT version_num FROM {version_table}".encode()).fetchall() if table and table[0] else []
    )
    return rows[0][0] if rows else None
