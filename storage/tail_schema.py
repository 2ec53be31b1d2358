"""What the tail's file looks like: its tables, and how a file of an older release gets those that it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio.errors import StoreError
from storage.sqlite import said, writing

if TYPE_CHECKING:
    import apsw

VERSION = 7
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
"""
# Version 2.
QUARANTINES = "CREATE TABLE cordons (endpoint TEXT PRIMARY KEY, evidence BLOB NOT NULL) STRICT, WITHOUT ROWID"
# Version 3. `last` NULL: up to the newest block, and on.
WATCHES = """
CREATE TABLE watches (
    chain TEXT NOT NULL, account TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER, PRIMARY KEY (chain, account)
) STRICT, WITHOUT ROWID
"""
# In which ways the history of an account was found, and what of it nobody could explain.
WAYS = """
CREATE TABLE ways (
    chain TEXT NOT NULL, account TEXT NOT NULL, dataset TEXT NOT NULL, way TEXT NOT NULL,
    PRIMARY KEY (chain, account, dataset, way)
) STRICT, WITHOUT ROWID
"""
UNEXPLAINED = """
CREATE TABLE unexplained (
    chain TEXT NOT NULL, account TEXT NOT NULL, height INTEGER NOT NULL, asset TEXT NOT NULL, raw TEXT NOT NULL,
    reason TEXT NOT NULL, PRIMARY KEY (chain, account, height, asset)
) STRICT, WITHOUT ROWID
"""
# Version 4. What the last comparison of an account's balances with its movements found, as JSON.
RECONCILIATIONS = """
CREATE TABLE reconciliations (
    chain TEXT NOT NULL, account TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, hash TEXT NOT NULL,
    result BLOB NOT NULL, PRIMARY KEY (chain, account)
) STRICT, WITHOUT ROWID
"""
# Version 5. Prices on their way to the lake, as JSON; no hash: of a final block. Numbers are never given out again.
PRICES = """
CREATE TABLE prices (
    number INTEGER PRIMARY KEY AUTOINCREMENT, chain TEXT NOT NULL, height INTEGER NOT NULL, hash TEXT NOT NULL,
    time_us INTEGER NOT NULL, asset TEXT NOT NULL, price BLOB NOT NULL, UNIQUE (chain, height, asset, hash)
) STRICT
"""
# Version 6. Each place has an owner: empty for the operator, else an account of the API. A place that was paid for is
# `sold`; at `expires_us` it ends, if that is not NULL.
PLACES = (
    "CREATE TABLE watches_with_owners ("
    "chain TEXT NOT NULL, account TEXT NOT NULL, owner TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER, "
    "sold INTEGER NOT NULL DEFAULT 0, expires_us INTEGER, PRIMARY KEY (chain, account, owner)) STRICT, WITHOUT ROWID",
    "INSERT INTO watches_with_owners SELECT chain, account, '', first, last, 0, NULL FROM watches",
    "DROP TABLE watches",
    "ALTER TABLE watches_with_owners RENAME TO watches",
)
# Version 7. What was read of transactions of others, in final blocks.
LOOKUPS = """
CREATE TABLE lookups (
    chain TEXT NOT NULL, tx_hash TEXT NOT NULL, height INTEGER NOT NULL, details BLOB NOT NULL,
    PRIMARY KEY (chain, tx_hash)
) STRICT, WITHOUT ROWID
"""
STATEMENTS = (
    *((1, each) for each in SCHEMA.split(";\n")),
    (2, QUARANTINES),
    *((3, each) for each in (WATCHES, WAYS, UNEXPLAINED)),
    (4, RECONCILIATIONS),
    (5, PRICES),
    *((6, each) for each in PLACES),
    (7, LOOKUPS),
)


def prepare(connection: apsw.Connection, path: Path) -> apsw.Connection:
    """Create the tables in a new file, add those that an older release did not have; refuse one of a newer release."""
    with said("tail", path):
        version = _version(connection)
        if version < VERSION:
            with writing(connection):
                # Another process may have been first.
                version = _version(connection)
                if version < VERSION:
                    for since, statement in STATEMENTS:
                        if version < since:
                            connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                    version = VERSION
    if version > VERSION:
        raise StoreError(
            "tail", f"{path} has version {version}, this release knows {VERSION}", remedy="upgrade Chainfolio"
        )
    return connection


def _version(connection: apsw.Connection) -> int:
    rows: list[Any] = connection.execute("PRAGMA user_version").fetchall()
    return int(rows[0][0])
