"""The tail in one SQLite file in WAL mode.

Every write takes the file's lock at its start. Locks of chains are files beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainfolio.storage.disk import lock_file
from chainfolio.storage.sqlite import connect, translate_errors, writing
from chainfolio.storage.tail_schema import prepare

if TYPE_CHECKING:
    import apsw

    from chainfolio.storage.tail_database import Rows

IN_MEMORY: Final = ":memory:"  # the path of a tail that ends with its process


class SqliteTail:
    """`tail_database.TailDatabase` on an SQLite file."""

    def __init__(self, path: Path, *, reader: bool = False) -> None:
        """Open the file; create it with its tables if it is missing."""
        self.path, self.address = path, str(path)
        self._lock = threading.RLock()
        if self.address != IN_MEMORY and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            prepare(_connect(path), path).close()
        self._connection = _connect(path, reader=reader)
        try:
            prepare(self._connection, path)
        except BaseException:  # also if it is cancelled
            self._connection.close()
            raise
        self._transaction = _Transaction(self._connection)

    def read(self, sql: str, *arguments: object) -> Rows:
        """Return the rows of one statement."""
        with translate_errors("tail", self.path), self._lock:
            return self._connection.execute(sql, arguments).fetchall()

    @contextmanager
    def write(self, chain: str) -> Iterator[_Transaction]:
        """Run the block in one write transaction."""
        with translate_errors("tail", self.path), self._lock, writing(self._connection):
            yield self._transaction

    def hold(self, name: str, subject: str, *, store: str = "tail", wait: bool = False) -> AbstractContextManager[None]:
        """Lock the file `locks/<name>.lock` next to the tail for the duration of the block."""
        return lock_file(self.path.parent / "locks" / f"{name}.lock", store=store, subject=subject, wait=wait)

    def check_locks(self, chain: str) -> None:
        """Do nothing: the system keeps the locks of files as long as their process lives."""

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


class _Transaction:
    """`tail_database.Transaction` on a connection of APSW."""

    __slots__ = ("_connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, *arguments: object) -> Rows:
        """Run a statement and return its rows."""
        return self._connection.execute(sql, arguments).fetchall()

    def run(self, sql: str, *arguments: object) -> int:
        """Run a change and return the number of changed rows."""
        self._connection.execute(sql, arguments)
        return self._connection.changes()

    def run_many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Run a change once per row of arguments."""
        self._connection.executemany(sql, rows)


def _connect(path: Path, *, reader: bool = False) -> apsw.Connection:
    with translate_errors("tail", path):
        return connect(path, reader=reader)
