"""Migrations of the state store: one file per revision, run when the store is opened.

Alembic writes the SQL, and the database's own driver runs it, all revisions in one transaction: two SQLite libraries
that have one file open in one process can break each other's locks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainfolio.storage import migrations
from chainfolio.storage.disk import lock_file, make_private

if TYPE_CHECKING:
    import apsw

    from chainfolio.storage.sqlite import Rows

VERSION_TABLE: Final = "alembic_version"
_REVISION: Final = f"SELECT version_num FROM {VERSION_TABLE}"


def migrate_sqlite(path: Path, head: str) -> None:
    """Migrate an SQLite file to the revision `head`, and create it if it is missing.

    A file of an earlier revision is copied first, to `<name>.before-<head>`. Safe with several processes.

    Raises:
        StoreError: The file has a later revision.
    """
    import apsw

    path.parent.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(path))
    try:
        make_private(path)  # before it has data: its journals get the same permissions
        connection.set_busy_timeout(5000)
        if _sqlite_revision(connection) == head:
            return
        with lock_file(path.with_name(path.name + ".lock"), store="state", subject=f"the upgrade of {path}", wait=True):
            current = _sqlite_revision(connection)
            if not migrations.needs_migration("state", current, head):
                return
            if current is not None:
                _copy(connection, path.with_name(f"{path.name}.before-{head}"))
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            with connection:
                connection.execute(script("sqlite", current)).fetchall()  # an unread row would end it
    finally:
        connection.close()


def script(dialect: str, current: str | None, revision: str = "head") -> str:
    """Return the SQL of all migrations after the revision `current` (None: none yet)."""
    return migrations.script(Path(__file__).parent, dialect, current, revision)


def _sqlite_revision(connection: apsw.Connection) -> str | None:
    tables = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (VERSION_TABLE,)).fetchall()
    rows: Rows = connection.execute(_REVISION).fetchall() if tables else []
    return rows[0][0] if rows else None


def _copy(source: apsw.Connection, path: Path) -> None:
    """Copy a file through SQLite, which includes the data of its journal."""
    draft = path.with_name(path.name + ".part")
    draft.unlink(missing_ok=True)
    source.execute("VACUUM INTO ?", (str(draft),))
    draft.replace(path)
