"""What the state store needs of a database, whichever it is: statements made once, transactions, and two ways to run.

The rest of this package is written against `Transaction` alone: plain functions of one, that hold for SQLite and for
PostgreSQL. `Database.run` gives them a thread and a durable commit; `Database.hot` is for the meter, thousands of
times a second: one small transaction that a power cut (not a crash) may undo, always in the customer's favour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects import sqlite as sqlite_dialect

T = TypeVar("T")

DIALECTS: dict[str, Any] = {
    "sqlite": sqlite_dialect.dialect(paramstyle="named"),
    "postgresql": postgresql.psycopg.dialect(),  # type: ignore[no-untyped-call]
    "sqlite-rows": sqlite_dialect.dialect(paramstyle="qmark"),
    "postgresql-rows": postgresql.psycopg.dialect(paramstyle="format"),  # type: ignore[no-untyped-call]
}


class Statement:
    """One SQL statement with `:name` parameters, in the words of each database; made when it is first needed.

    `columns` are those that an insert fills; `many` gives them in the order of the table.
    """

    __slots__ = ("_built", "_columns", "_texts")

    def __init__(self, built: Any, columns: Iterable[str] | None = None) -> None:
        self._built = built
        self._columns = None if columns is None else list(columns)
        self._texts: dict[str, str] = {}

    def text(self, dialect: str) -> str:
        """The SQL for one of DIALECTS, as its driver takes it; `-rows` takes values by their place."""
        found = self._texts.get(dialect)
        if found is None:
            compiled = self._built.compile(dialect=DIALECTS[dialect], column_keys=self._columns)
            values = {name for name, value in compiled.params.items() if type(value) in (str, int, bytes)}
            assert not values, f"{values} in a statement: make each a `literal`"
            found = self._texts[dialect] = str(compiled)
        return found


class Transaction(Protocol):
    """One transaction, already begun for writing; who raises out of it leaves no trace."""

    def now_us(self) -> int:
        """The store's own time, which no process's clock and no step of the calendar moves: all that share the store
        agree on it. Close to microseconds since 1970, but for ordering and for durations only."""

    def rows(self, statement: Statement, **arguments: Any) -> list[tuple[Any, ...]]:
        """Every row that a statement gives."""

    def run(self, statement: Statement, **arguments: Any) -> int:
        """How many rows a statement changed."""

    def each(self, statement: Statement, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """What the same select gives for each of the rows, whose values stand in the order of its parameters."""

    def many(self, statement: Statement, rows: Sequence[tuple[Any, ...]]) -> int:
        """The same change for each of the rows, whose values stand in the order of its parameters, for an insert that
        of the table's columns; how many rows of the table it changed."""


Work = Callable[[Transaction], T]
Time = Callable[[], int]


class UniqueViolation(Exception):
    """A row with that key is there already: who inserts knows what it means."""


class Database(Protocol):
    """A database with the tables of `schema`, at its newest revision."""

    name: str

    def look(self, work: Work[T]) -> T:
        """Read, here and now, what is committed, as of one moment."""

    def change(self, work: Work[T]) -> T:
        """Read and write in one transaction, here and now; on return it outlives a power cut."""

    async def see(self, work: Work[T]) -> T:
        """`look`, without holding up the event loop."""

    async def run(self, work: Work[T]) -> T:
        """`change`, off the event loop."""

    async def hot(self, work: Work[T]) -> T:
        """A small transaction of the meter, with its own connection; one at a time."""

    def close(self) -> None:
        """Let go of everything."""


def one(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...] | None:
    """The only row, or None."""
    assert len(rows) <= 1, f"{len(rows)} rows where there is one at most"
    return rows[0] if rows else None


def literal(value: str | int) -> Any:
    """A value that is part of the statement; never one from outside."""
    return sa.literal_column(f"'{value}'" if isinstance(value, str) else str(value))


def argument(name: str) -> Any:
    """A `:name` of a statement."""
    return sa.bindparam(name)
