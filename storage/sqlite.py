"""What both SQLite stores do alike: connections, transactions, and errors in our own words.

Over APSW, for the SQLite that it brings is a new one: from 3.7.0 to 3.51.2 two processes that checkpoint a file at the
same moment can damage it, and the one that Python was built with is often such a one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

from chainfolio.errors import Busy, StorageFull, StoreError, TooManyFiles

BUSY_MS: Final = 5000
_BACKUP: Final = {"tail": "restore it and the lake from one backup", "state": "restore it from a backup"}


def connect(path: Path, *, synchronous: str = "FULL", reader: bool = False) -> apsw.Connection:
    """A connection in WAL mode that begins no transaction by itself; a reader cannot write.

    Full: a number that was given out, or a key that was shown, outlives a power cut.
    """
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MS)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA foreign_keys = ON")
    if reader:
        connection.execute("PRAGMA query_only = ON")
    return connection


@contextmanager
def writing(connection: apsw.Connection) -> Iterator[apsw.Connection]:
    """One transaction that takes the write lock at once: a deferred one can lose it half-way and cannot wait for it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:  # whatever stopped it: half a transaction is none
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def said(store: str, path: Path) -> Iterator[None]:
    """SQLite's errors as the error tree names them."""
    try:
        yield
    except apsw.Error as error:
        raise translated(store, path, error) from error


def translated(store: str, path: Path, error: apsw.Error) -> StoreError:
    """An error of SQLite as the error tree names it."""
    if isinstance(error, apsw.FullError):
        return StorageFull(store)
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Busy(store, f"{path} is in use by another process", remedy="try again")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return StoreError(store, f"{path} is damaged: {error}", remedy=f"stop everything, then {_BACKUP[store]}")
    if isinstance(error, apsw.CantOpenError) and not _may_open():
        return TooManyFiles(store)
    if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError | apsw.PermissionsError):
        remedy = "check its folder and its owner"
        return StoreError(store, f"{path} cannot be opened for writing: {error}", remedy=remedy)
    return StoreError(store, f"{path}: {error}")


def _may_open() -> bool:
    """Whether this process may open one more file: SQLite does not say why it could not."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True
