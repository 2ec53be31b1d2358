"""What both SQLite stores do alike: connections, transactions, and errors in our own words.

SQLite from 3.7.0 to 3.51.2 can damage a file when two processes checkpoint it at the same moment: of the processes that
share a file, only the one that writes may have a connection that is no `reader`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chainfolio.errors import Busy, StorageFull, StoreError

BUSY_MS = 5000


def connect(path: Path, *, store: str, reader: bool = False) -> sqlite3.Connection:
    """A connection in WAL mode that begins no transaction by itself; a reader cannot write and never checkpoints."""
    with said(store, path):
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000)
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL")
        # Full: a number that was given out, or a key that was shown, outlives a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        if reader:
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA query_only = ON")
    return connection


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
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
    except sqlite3.Error as error:
        raise _error(store, path, error) from error


def _error(store: str, path: Path, error: sqlite3.Error) -> StoreError:
    name = getattr(error, "sqlite_errorname", "") or ""
    text = str(error)
    if name.startswith("SQLITE_FULL") or "disk is full" in text:
        return StorageFull(store)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or "is locked" in text:
        return Busy(store, f"{path} is in use by another process", cure="try again")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreError(
            store, f"{path} is damaged: {text}", cure="stop everything, then restore it and the lake from one backup"
        )
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
        return StoreError(store, f"{path} cannot be opened for writing: {text}", cure="check its folder and its owner")
    return StoreError(store, f"{path}: {text}")
