"""How the state store came to its present tables: one file a step, run by itself when the store is opened.

Alembic writes the SQL, and the database's own driver runs it, all steps in one transaction: two SQLite libraries that
have one file open in one process can break each other's locks.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chainfolio.errors import StoreError
from storage.disk import held, private

if TYPE_CHECKING:
    import apsw
    import psycopg

VERSION_TABLE: Final = "alembic_version"
_REVISION: Final = f"SELECT version_num FROM {VERSION_TABLE}"
_LOCK: Final = 0x6368_6169_6E66_6F6C  # "chainfol": one upgrade at a time


def migrate_sqlite(path: Path, head: str) -> None:
    """Bring an SQLite file to `head`, once, whoever else opens it now; a file of a newer release is refused.

    What was there before is kept beside it, as `<name>.before-<head>`.
    """
    import apsw

    path.parent.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(path))
    try:
        private(path)  # before anything of a tenant is in it: its journals are made like it
        connection.set_busy_timeout(5000)
        if _sqlite_revision(connection) == head:
            return
        with held(path.with_name(path.name + ".lock"), store="state", what=f"the upgrade of {path}", wait=True):
            found = _sqlite_revision(connection)
            if not _underlying(found, head):
                return
            if found is not None:
                _copy(connection, path.with_name(f"{path.name}.before-{head}"))
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            with connection:
                connection.execute(script("sqlite", found)).fetchall()  # all of it: a row would stop it
    finally:
        connection.close()


def migrate_postgres(url: str, head: str) -> None:
    """Bring a PostgreSQL database to `head`, once, whoever else opens it now; that of a newer release is refused."""
    import psycopg

    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        if _postgres_revision(connection) == head:
            return
        connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        found = _postgres_revision(connection)
        if _underlying(found, head):
            with connection.transaction():
                connection.execute(script("postgresql", found).encode())


def script(dialect: str, found: str | None, revision: str = "head") -> str:
    """The SQL of all steps after `found`."""
    from alembic import command
    from alembic.config import Config

    text = io.StringIO()
    config = Config(output_buffer=text)
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["dialect"] = dialect
    command.upgrade(config, f"{found}:{revision}" if found else revision, sql=True)
    return text.getvalue()


def _underlying(found: str | None, head: str) -> bool:
    if found is not None and found > head:
        raise StoreError("state", f"it has revision {found}, this release knows {head}", remedy="upgrade Chainfolio")
    return found != head


def _sqlite_revision(connection: apsw.Connection) -> str | None:
    there = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (VERSION_TABLE,)).fetchall()
    rows: list[Any] = connection.execute(_REVISION).fetchall() if there else []
    return rows[0][0] if rows else None


def _postgres_revision(connection: psycopg.Connection[Any]) -> str | None:
    there = connection.execute("SELECT to_regclass(%s)", [VERSION_TABLE]).fetchone()
    rows: list[Any] = connection.execute(_REVISION).fetchall() if there and there[0] else []
    return rows[0][0] if rows else None


def _copy(source: apsw.Connection, place: Path) -> None:
    """A whole copy, made through SQLite so that what still lies in its journal is in it."""
    draft = place.with_name(place.name + ".part")
    draft.unlink(missing_ok=True)
    source.execute("VACUUM INTO ?", (str(draft),))
    draft.replace(place)
