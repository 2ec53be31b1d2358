"""Connections, transactions and error translation of both SQLite stores.

APSW brings a recent SQLite. In versions 3.7.0 to 3.51.2, which Python often uses, two processes that checkpoint a file
at the same time can damage it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import apsw

from chainfolio.errors import Locked, StorageFull, StoreError, TooManyFiles

Rows: TypeAlias = list[Any]  # tuples of SQL values
BUSY_MS: Final = 5000
MAX_JOURNAL_BYTES: Final = 64 * 2**20  # a longer journal is shortened to this once it begins anew
_BACKUP: Final = {"tail": "restore it and the lake from one backup", "state": "restore it from a backup"}


def connect(path: Path, *, synchronous: str = "FULL", reader: bool = False) -> apsw.Connection:
    """Open a file in WAL mode, without implicit transactions.

    Args:
        synchronous: FULL makes each commit survive a power failure; NORMAL does not.
        reader: Refuse writes on this connection.
    """
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MS)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA journal_size_limit = {MAX_JOURNAL_BYTES}").fetchall()
    connection.execute("PRAGMA foreign_keys = ON")
    if reader:
        connection.execute("PRAGMA query_only = ON")
    return connection


def journal_bytes(path: Path) -> int:
    """Return the size of the journal beside a file; 0 if there is none."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def writing(connection: apsw.Connection) -> Iterator[apsw.Connection]:
    """Run the block in one write transaction, rolled back if the block raises.

    The lock is taken at the start: a transaction that upgrades to it later cannot wait for it. Errors of SQLite are
    not translated here: the caller wraps this in `translate_errors`.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:  # also if the block is cancelled
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def translate_errors(store: str, path: Path) -> Iterator[None]:
    """Raise errors of SQLite as StoreError and its subclasses."""
    try:
        yield
    except apsw.Error as error:
        raise translate_error(store, path, error) from error


def translate_error(store: str, path: Path, error: apsw.Error) -> StoreError:
    """Return the typed error for an error of SQLite: StorageFull, Locked, TooManyFiles, else StoreError."""
    if isinstance(error, apsw.FullError):
        return StorageFull(store)
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Locked(store, f"{path} is in use by another process", remedy="try again")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return StoreError(store, f"{path} is damaged: {error}", remedy=f"stop everything, then {_BACKUP[store]}")
    if isinstance(error, apsw.CantOpenError) and not _can_open_file():
        return TooManyFiles(store)
    if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError | apsw.PermissionsError):
        remedy = "check its folder and its owner"
        return StoreError(store, f"{path} cannot be opened for writing: {error}", remedy=remedy)
    return StoreError(store, f"{path}: {error}")


def _can_open_file() -> bool:
    """Return False if this process has no file descriptor left: SQLite does not report that reason."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True
