"""The tables of the tail's SQLite file, and the check of its format version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.errors import StoreError
from chainfolio.storage.sqlite import Rows, translate_errors, writing

if TYPE_CHECKING:
    import apsw

VERSION = 1
SCHEMA = """
CREATE TABLE blocks (
    chain TEXT NOT NULL, height INTEGER NOT NULL, hash TEXT NOT NULL, parent TEXT NOT NULL, time_us INTEGER NOT NULL,
    PRIMARY KEY (chain, height)
) STRICT, WITHOUT ROWID;
CREATE TABLE rows (
    chain TEXT NOT NULL, name TEXT NOT NULL, height INTEGER NOT NULL, ipc BLOB NOT NULL,
    PRIMARY KEY (chain, name, height)
) STRICT;
CREATE INDEX rows_by_height ON rows (chain, height);
CREATE TABLE anchors (
    chain TEXT PRIMARY KEY, height INTEGER NOT NULL, hash TEXT NOT NULL, parent TEXT NOT NULL, time_us INTEGER NOT NULL
) STRICT;
CREATE TABLE cover (
    chain TEXT NOT NULL, dataset TEXT NOT NULL, filter TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    PRIMARY KEY (chain, dataset, filter, first)
) STRICT, WITHOUT ROWID;
CREATE TABLE batches (
    chain TEXT NOT NULL, number INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    datasets TEXT NOT NULL, filters TEXT NOT NULL, lane INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (chain, number)
) STRICT;
CREATE INDEX batches_open ON batches (chain, number) WHERE done = 0;
CREATE TABLE learnt (
    endpoint TEXT NOT NULL, name TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (endpoint, name)
) STRICT, WITHOUT ROWID;
-- Endpoints that contradicted verified data, with the evidence.
CREATE TABLE cordons (endpoint TEXT PRIMARY KEY, evidence BLOB NOT NULL) STRICT, WITHOUT ROWID;
-- Accounts to index. `last` is NULL if new blocks are indexed too. `owner` is empty for the operator, else an account
-- of the API. A place that was paid for is `sold`; it ends at `expires_us`, if that is not NULL.
CREATE TABLE watches (
    chain TEXT NOT NULL, account TEXT NOT NULL, owner TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER,
    sold INTEGER NOT NULL DEFAULT 0, expires_us INTEGER, PRIMARY KEY (chain, account, owner)
) STRICT, WITHOUT ROWID;
-- Methods by which the history of an account was read, and balance changes that no transaction explains.
CREATE TABLE ways (
    chain TEXT NOT NULL, account TEXT NOT NULL, dataset TEXT NOT NULL, way TEXT NOT NULL,
    PRIMARY KEY (chain, account, dataset, way)
) STRICT, WITHOUT ROWID;
CREATE TABLE unexplained (
    chain TEXT NOT NULL, account TEXT NOT NULL, height INTEGER NOT NULL, asset TEXT NOT NULL, raw TEXT NOT NULL,
    reason TEXT NOT NULL, PRIMARY KEY (chain, account, height, asset)
) STRICT, WITHOUT ROWID;
-- The last comparison of each account's balances with its transfers, as JSON.
CREATE TABLE reconciliations (
    chain TEXT NOT NULL, account TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, hash TEXT NOT NULL,
    result BLOB NOT NULL, PRIMARY KEY (chain, account)
) STRICT, WITHOUT ROWID;
-- Prices that are not in the lake yet, as JSON. `hash` is empty for final blocks. AUTOINCREMENT: numbers are unique.
CREATE TABLE prices (
    number INTEGER PRIMARY KEY AUTOINCREMENT, chain TEXT NOT NULL, height INTEGER NOT NULL, hash TEXT NOT NULL,
    time_us INTEGER NOT NULL, asset TEXT NOT NULL, price BLOB NOT NULL, UNIQUE (chain, height, asset, hash)
) STRICT;
-- Details of transactions that are not of indexed accounts; under `hash/positions`, the changes of positions in one.
CREATE TABLE lookups (
    chain TEXT NOT NULL, tx_hash TEXT NOT NULL, height INTEGER NOT NULL, details BLOB NOT NULL,
    PRIMARY KEY (chain, tx_hash)
) STRICT, WITHOUT ROWID;
-- Responses of endpoints that one command stores for the next one. `request` is a digest.
CREATE TABLE answers (
    endpoint TEXT NOT NULL, request TEXT NOT NULL, read_us INTEGER NOT NULL, answer BLOB NOT NULL,
    PRIMARY KEY (endpoint, request)
) STRICT, WITHOUT ROWID;
"""


def prepare(connection: apsw.Connection, path: Path) -> apsw.Connection:
    """Create the tables in a new file and return the connection.

    Raises:
        StoreError: The file has another format version.
    """
    with translate_errors("tail", path):
        version = _version(connection)
        if version == 0:
            with writing(connection):
                version = _version(connection)  # another process may have created the tables since
                if version == 0:
                    connection.execute(SCHEMA)
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                    version = VERSION
    if version != VERSION:
        raise StoreError(
            "tail",
            f"{path} has format version {version}, this release reads version {VERSION}",
            remedy="use the release of Chainfolio that wrote the data folder, or index into an empty one",
        )
    return connection


def _version(connection: apsw.Connection) -> int:
    rows: Rows = connection.execute("PRAGMA user_version").fetchall()
    return int(rows[0][0])
