"""Copy all rows of a store from one database into another, and compare them by digests.

A table is copied in one transaction, from one state of the source. A transfer that was interrupted copies the remaining
tables when it is repeated. A table that has other rows is refused, so nothing is ever overwritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from chainfolio.errors import StoreError, needs_extra
from chainfolio.storage.sqlite import connect, translate_errors
from chainfolio.storage.tail_schema import SCHEMA

if TYPE_CHECKING:
    from chainfolio.storage.postgres import Connection

Row: TypeAlias = tuple[Any, ...]
SQLITE: Final = "sqlite:///"
# Rows that a new state store has from the beginning. They are replaced.
INITIAL: Final = frozenset({"marks"})


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its columns and its key. Rows are ordered by the key, and texts by their bytes."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    texts: frozenset[str]


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """The result for one table. `copied` is False if the target had the same rows before."""

    store: str
    table: str
    rows: int
    digest: str
    copied: bool


class Side(Protocol):
    """One of the two databases."""

    def reading(self) -> AbstractContextManager[None]:
        """Read from one state of the database during the block."""

    def writing(self) -> AbstractContextManager[None]:
        """Run the block in one transaction."""

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield all rows of a table in the order of its key."""

    def replace(self, table: Table, rows: Iterable[Row]) -> None:
        """Write the rows of a table, which has none or those of a new store."""

    def close(self) -> None:
        """Close the connection."""


def tail_tables() -> list[Table]:
    """Return the tables of a tail that both of its databases have."""
    import apsw

    with closing(apsw.Connection(":memory:")) as connection:
        connection.execute(SCHEMA)
        rows = connection.execute(
            "SELECT m.name, p.name, p.type, p.pk FROM sqlite_schema m, pragma_table_info(m.name) p "
            "WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.rowid, p.cid"
        ).fetchall()
    columns: dict[str, list[Any]] = {}
    for name, *column in rows:
        columns.setdefault(str(name), []).append(column)
    return [
        Table(
            name,
            tuple(column for column, _, _ in each),
            tuple(column for column, _, place in sorted(each, key=lambda column: column[2]) if place),
            frozenset(column for column, type_, _ in each if type_ == "TEXT"),
        )
        for name, each in columns.items()
    ]


def state_tables() -> list[Table]:
    """Return the tables of the state store, those that others refer to first."""
    import sqlalchemy as sa

    from chainfolio.storage.state.schema import metadata

    return [
        Table(
            table.name,
            tuple(column.name for column in table.columns),
            tuple(column.name for column in table.primary_key.columns),
            frozenset(column.name for column in table.columns if isinstance(column.type, sa.Text)),
        )
        for table in metadata.sorted_tables
    ]


def open_side(store: str, url: str) -> Side:
    """Open a database, whose tables exist already."""
    if url.startswith(SQLITE):
        return _SqliteSide(store, Path(url.removeprefix(SQLITE)))
    with needs_extra("postgres", "a store on PostgreSQL"):
        from chainfolio.storage import postgres
    with postgres.translate_errors(store, url):
        # A transfer may take longer than a statement of a request.
        return _PostgresSide(store, url, postgres.connect(url, "statement_timeout=0"))


def transfer(store: str, source: Side, target: Side, tables: Sequence[Table]) -> Iterator[CopiedTable]:
    """Copy the tables of a store, one per step of the iteration, and yield the result for each one.

    Tables whose rows are equal already are not copied. At the end the source is compared once more.

    Raises:
        StoreError: The target has other rows already, or the source has changed during the transfer.
    """
    done: list[CopiedTable] = []
    with source.reading():
        for table in tables:
            expected, found = _digest(source.rows(table)), _digest(target.rows(table))
            if found != expected:
                _check_is_free(store, table, found[0])
                with target.writing():
                    target.replace(table, source.rows(table))
                    if _digest(target.rows(table)) != expected:
                        raise StoreError(store, f"the rows of {table.name} are other ones after they were copied")
            done.append(CopiedTable(store, table.name, *expected, copied=found != expected))
            yield done[-1]
    with source.reading():
        for table, copied in zip(tables, done, strict=True):
            if _digest(source.rows(table)) != (copied.rows, copied.digest):
                raise StoreError(
                    store,
                    f"{table.name} was changed while it was copied",
                    remedy="stop everything that writes, empty the target, and start again",
                )


def _check_is_free(store: str, table: Table, count: int) -> None:
    if count and table.name not in INITIAL:
        remedy = "name an empty database; an interrupted move continues only while the source stays as it was"
        raise StoreError(store, f"{table.name} of the target has {count:,} other rows", remedy=remedy)


def _digest(rows: Iterable[Row]) -> tuple[int, str]:
    """Return the count and the SHA-256 of rows in the order of their key."""
    digest, count = hashlib.sha256(), 0
    for row in rows:
        digest.update(msgspec.msgpack.encode(row))
        count += 1
    return count, digest.hexdigest()


class _SqliteSide:
    """`Side` on an SQLite file."""

    def __init__(self, store: str, path: Path) -> None:
        self._store, self._path = store, path
        with translate_errors(store, path):
            self._connection = connect(path)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        """Run the block in a transaction that begins with `begin`; roll back if it raises."""
        with translate_errors(self._store, self._path):
            self._connection.execute(begin)
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:  # also if it is cancelled
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def reading(self) -> AbstractContextManager[None]:
        """Read from one state of the file during the block."""
        return self._transaction("BEGIN")

    def writing(self) -> AbstractContextManager[None]:
        """Run the block in one transaction."""
        return self._transaction("BEGIN IMMEDIATE")

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield all rows of a table in the order of its key."""
        yield from self._connection.execute(
            f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {', '.join(table.key)}"
        )

    def replace(self, table: Table, rows: Iterable[Row]) -> None:
        """Insert rows into a table. Existing rows are deleted first only in tables of `INITIAL`."""
        if table.name in INITIAL:
            self._connection.execute(f"DELETE FROM {table.name}")
        places = ", ".join("?" * len(table.columns))
        self._connection.executemany(
            f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({places})", map(tuple, rows)
        )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class _PostgresSide:
    """`Side` on a PostgreSQL database."""

    def __init__(self, store: str, url: str, connection: Connection) -> None:
        self._store, self._url, self._connection = store, url, connection

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        """Run the block in a transaction that begins with a statement; StoreError for errors of PostgreSQL."""
        from chainfolio.storage.postgres import translate_errors

        with translate_errors(self._store, self._url), self._connection.transaction():
            self._connection.execute(begin.encode())
            yield

    def reading(self) -> AbstractContextManager[None]:
        """Read from one state of the database during the block."""
        return self._transaction("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    def writing(self) -> AbstractContextManager[None]:
        """Run the block in one transaction."""
        return self._transaction("SET LOCAL synchronous_commit = on")

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield all rows of a table in the order of its key, without having all in memory."""
        order = ", ".join(f'{each} COLLATE "C"' if each in table.texts else each for each in table.key)
        sql = f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {order}"
        with self._connection.transaction(), self._connection.cursor("move", binary=True) as cursor:
            cursor.itersize = 500
            yield from cursor.execute(sql.encode())

    def replace(self, table: Table, rows: Iterable[Row]) -> None:
        """Insert rows into a table, and let its numbers continue after the highest one.

        Existing rows are deleted first only in tables of `INITIAL`.
        """
        names = ", ".join(table.columns)
        if table.name in INITIAL:
            self._connection.execute(f"DELETE FROM {table.name}".encode())
        with self._connection.cursor().copy(f"COPY {table.name} ({names}) FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)
        for column in (each for each in table.key if each not in table.texts):
            sequence = f"pg_get_serial_sequence('{table.name}', '{column}')"
            self._connection.execute(
                f"SELECT setval({sequence}, max({column})) FROM {table.name} "
                f"HAVING {sequence} IS NOT NULL AND count(*) > 0".encode()
            )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
