"""The interface of the tail's databases: one SQL text for SQLite and PostgreSQL.

Statements are written in the SQL that both understand, with `?` or `?1` as parameters. Tables, their columns and their
keys are equal in both. A database adapts the rest: the parameters, and `VALUES_OF_LIST`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeAlias

Rows: TypeAlias = list[Any]  # tuples of SQL values
VALUES_OF_LIST: Final = "SELECT value FROM json_each(?)"  # the texts of a JSON array


class Transaction(Protocol):
    """A write transaction, the only one of the tail at that time. It is rolled back if its block raises."""

    def rows(self, sql: str, *arguments: object) -> Rows:
        """Run a statement and return its rows."""

    def run(self, sql: str, *arguments: object) -> int:
        """Run a change and return the number of changed rows."""

    def run_many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Run a change once per row of arguments."""


class TailDatabase(Protocol):
    """A database with the tables of the tail. Safe to use from several threads.

    Attributes:
        address: Where it is, for messages, without a password.
    """

    address: str

    def read(self, sql: str, *arguments: object) -> Rows:
        """Return the rows of one statement: committed ones, and in a transaction of this thread also its own."""

    def write(self, chain: str) -> AbstractContextManager[Transaction]:
        """Run the block in one write transaction, whose commit survives a power failure.

        Args:
            chain: The chain to change; empty for what belongs to no chain.

        Raises:
            Locked: The lock of the chain that this process had is lost, or another process writes for too long.
        """

    def hold(self, name: str, subject: str, *, store: str = "tail", wait: bool = False) -> AbstractContextManager[None]:
        """Take the lock `name` for the duration of the block. A process that ends loses its locks.

        Args:
            subject: What is locked, for errors.
            store: The store that the lock protects, for errors.
            wait: Wait for the lock instead of raising Locked.

        Raises:
            Locked: Another process has the lock; the message names the process.
        """

    def check_locks(self, chain: str) -> None:
        """Raise Locked if this process lost a lock of a chain that it holds; see `TailLocks.check_locks`."""

    def close(self) -> None:
        """Close the connection."""
