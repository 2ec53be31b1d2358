"""How the state store came to its present tables: one file a step, run by itself when the store is opened."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from chainfolio.errors import StoreError
from storage.disk import held
from storage.sqlite import connect, said

VERSION_TABLE = "alembic_version"


def migrate(path: Path, head: str) -> None:
    """Bring an SQLite file to `head`, once, whoever else opens it now; a file of a newer release is refused.

    Each step is one transaction. What was there before is kept beside it, as `<name>.before-<head>`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if _revision(path) == head:
        return
    with held(path.with_name(path.name + ".lock"), store="state", what=f"the upgrade of {path}", wait=True):
        found = _revision(path)
        if found == head:
            return
        if found is not None and found > head:
            raise StoreError(
                "state", f"{path} has revision {found}, this release knows {head}", cure="upgrade Chainfolio"
            )
        if found is not None:
            _copy(path, path.with_name(f"{path.name}.before-{head}"))
        with said("state", path):
            upgrade(path)


def upgrade(path: Path, revision: str = "head") -> None:
    """Run Alembic, here, on one connection."""
    import sqlalchemy as sa
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    # A connection that begins no transaction by itself, and an engine that begins one that writes: otherwise the
    # driver would commit before every change of a table, and a step that is killed would be half done.
    engine = sa.create_engine("sqlite://", creator=lambda: connect(path, store="state"), poolclass=sa.NullPool)
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    except sa.exc.DBAPIError as error:
        raise error.orig if isinstance(error.orig, sqlite3.Error) else error from error
    finally:
        engine.dispose()


def _revision(path: Path) -> str | None:
    if not path.exists() or not path.stat().st_size:
        return None
    connection = connect(path, store="state")
    try:
        with said("state", path):
            there = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (VERSION_TABLE,)).fetchone()
            row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone() if there else None
    finally:
        connection.close()
    return row[0] if row else None


def _copy(path: Path, place: Path) -> None:
    """A whole copy, made through SQLite so that what still lies in its journal is in it."""
    draft = place.with_name(place.name + ".part")
    draft.unlink(missing_ok=True)
    source, target = connect(path, store="state"), sqlite3.connect(draft)
    try:
        with said("state", path):
            source.backup(target)
    finally:
        source.close()
        target.close()
    shutil.copymode(path, draft)
    draft.replace(place)
