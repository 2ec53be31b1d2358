"""Migrations of the state store: one file per revision, run when the store is opened.

Alembic writes the SQL, and the database's own driver runs it, all revisions in one transaction: two SQLite libraries
that have one file open in one process can break each other's locks.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainfolio.errors import StoreError
from chainfolio.storage.disk import lock_file, make_private

if TYPE_CHECKING:
    import apsw
    import psycopg

    from chainfolio.storage.sqlite import Rows

VERSION_TABLE: Final = "alembic_version"
_REVISION: Final = f"SELECT version_num FROM {VERSION_TABLE}"
_LOCK: Final = 0x6368_6169_6E66_6F6C  # "chainfol": one upgrade at a time


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
            if not _needs_migration(current, head):
                return
            if current is not None:
                _copy(connection, path.with_name(f"{path.name}.before-{head}"))
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            with connection:
                connection.execute(script("sqlite", current)).fetchall()  # an unread row would end it
    finally:
        connection.close()


def migrate_postgres(url: str, head: str) -> None:
    """Migrate a PostgreSQL database to the revision `head`. Safe with several processes.

    Raises:
        StoreError: The database has a later revision.
    """
    import psycopg

    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        if _postgres_revision(connection) == head:
            return
        connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        current = _postgres_revision(connection)
        if _needs_migration(current, head):
            with connection.transaction():
                connection.execute(script("postgresql", current).encode())


def script(dialect: str, current: str | None, revision: str = "head") -> str:
    """Return the SQL of all migrations after the revision `current` (None: none yet)."""
    from alembic import command
    from alembic.config import Config

    text = io.StringIO()
    config = Config(output_buffer=text)
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["dialect"] = dialect
    command.upgrade(config, f"{current}:{revision}" if current else revision, sql=True)
    return text.getvalue()


def _needs_migration(current: str | None, head: str) -> bool:
    if current is not None and current > head:
        raise StoreError(
            "state",
            f"it has revision {current}, this release reads revision {head}",
            remedy="use the release of Chainfolio that wrote it, or an empty store",
        )
    return current != head


def _sqlite_revision(connection: apsw.Connection) -> str | None:
    tables = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (VERSION_TABLE,)).fetchall()
    rows: Rows = connection.execute(_REVISION).fetchall() if tables else []
    return rows[0][0] if rows else None


def _postgres_revision(connection: psycopg.Connection[tuple[str, ...]]) -> str | None:
    table = connection.execute("SELECT to_regclass(%s)", [VERSION_TABLE]).fetchone()
    rows: Rows = connection.execute(_REVISION).fetchall() if table and table[0] else []
    return rows[0][0] if rows else None


def _copy(source: apsw.Connection, path: Path) -> None:
    """Copy a file through SQLite, which includes the data of its journal."""
    draft = path.with_name(path.name + ".part")
    draft.unlink(missing_ok=True)
    source.execute("VACUUM INTO ?", (str(draft),))
    draft.replace(path)
