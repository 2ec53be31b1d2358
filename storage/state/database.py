"""The interface of the state store's databases: statements, transactions, and ways to run them.

The rest of this package is written against `Transaction`: plain functions of one, which work with SQLite and
PostgreSQL. `Database.write_async` runs them in a thread with a durable commit. `Database.meter_transaction` is for the
meter, thousands of times a second: a small transaction that a power failure (not a crash) may undo, in favour of the
customer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects import sqlite as sqlite_dialect

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]
Value: TypeAlias = str | int | bytes | None

DIALECTS: dict[str, sa.Dialect] = {
    "sqlite": sqlite_dialect.dialect(paramstyle="named"),
    "postgresql": postgresql.psycopg.dialect(),  # type: ignore[no-untyped-call]
    "sqlite-rows": sqlite_dialect.dialect(paramstyle="qmark"),
    "postgresql-rows": postgresql.psycopg.dialect(paramstyle="format"),  # type: ignore[no-untyped-call]
}


class Statement:
    """An SQL statement with `:name` parameters, compiled for each database when it is first used.

    Args:
        built: A statement of SQLAlchemy.
        columns: The columns that an insert fills, in the order of the rows of `run_many`; None for all.
    """

    __slots__ = ("_built", "_columns", "_texts")

    def __init__(self, built: sa.ClauseElement, columns: Iterable[str] | None = None) -> None:
        self._built = built
        self._columns = None if columns is None else list(columns)
        self._texts: dict[str, str] = {}

    def text(self, dialect: str) -> str:
        """Return the SQL for a key of DIALECTS. Variants with `-rows` take positional parameters."""
        text = self._texts.get(dialect)
        if text is None:
            compiled = self._built.compile(dialect=DIALECTS[dialect], column_keys=self._columns)
            values = {name for name, value in compiled.params.items() if type(value) in (str, int, bytes)}
            assert not values, f"{values} in a statement: make each a `literal`"
            text = self._texts[dialect] = str(compiled)
        return text


class Transaction(Protocol):
    """A transaction that has the write lock. It is rolled back if the function that uses it raises."""

    def now_us(self) -> int:
        """Return the store's time, in microseconds, for ordering and durations only.

        It is close to Unix time, the same for all processes, and independent of clock changes.
        """

    def rows(self, statement: Statement, **arguments: Value) -> list[Row]:
        """Return all rows of a statement."""

    def run(self, statement: Statement, **arguments: Value) -> int:
        """Run a statement and return the number of changed rows."""

    def rows_of_each(self, statement: Statement, rows: Sequence[Row]) -> list[Row]:
        """Run a select once per row of parameters (in their order) and return all results."""

    def run_many(self, statement: Statement, rows: Sequence[Row]) -> int:
        """Run a change once per row of parameters, and return the number of changed rows.

        The values of a row have the order of the parameters, for an insert that of the table's columns.
        """


Work = Callable[[Transaction], T]
Time = Callable[[], int]


class UniqueViolation(Exception):
    """A row with that key exists already. The caller knows what this means."""


class Database(Protocol):
    """A database with the tables of `schema`, at its newest revision."""

    name: str

    def read(self, work: Work[T]) -> T:
        """Read committed data in this thread, from one consistent state."""

    def write(self, work: Work[T]) -> T:
        """Read and write in one transaction in this thread. Its commit survives a power failure."""

    async def read_async(self, work: Work[T]) -> T:
        """Run `read` without blocking the event loop."""

    async def write_async(self, work: Work[T]) -> T:
        """Run `write` without blocking the event loop."""

    async def meter_transaction(self, work: Work[T]) -> T:
        """Run a small transaction of the meter on its own connection, one at a time."""

    def close(self) -> None:
        """Close all connections."""


def only_row(rows: Sequence[Row]) -> Row | None:
    """Return the only row; None if there is none."""
    assert len(rows) <= 1, f"{len(rows)} rows where there is one at most"
    return rows[0] if rows else None


def literal(value: str | int) -> sa.ColumnElement[Any]:
    """Return a value as part of the statement; never use it for input."""
    return sa.literal_column(f"'{value}'" if isinstance(value, str) else str(value))


def argument(name: str) -> sa.BindParameter[Any]:
    """Return a parameter `:name` of a statement."""
    return sa.bindparam(name)
