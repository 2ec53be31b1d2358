"""Alembic as a writer of SQL: the database's own driver runs it, all revisions in one transaction."""

from __future__ import annotations

import io
from pathlib import Path

from chainfolio.errors import StoreError


def script(folder: Path, dialect: str, current: str | None, revision: str = "head") -> str:
    """Return the SQL of all migrations in a folder after the revision `current` (None: none yet)."""
    from alembic import command
    from alembic.config import Config

    text = io.StringIO()
    config = Config(output_buffer=text)
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["dialect"] = dialect
    command.upgrade(config, f"{current}:{revision}" if current else revision, sql=True)
    return text.getvalue()


def needs_migration(store: str, current: str | None, head: str) -> bool:
    """Return True if a store's revision is earlier than `head`.

    Raises:
        StoreError: It is a later one.
    """
    if current is not None and current > head:
        raise StoreError(
            store,
            f"it has revision {current}, this release reads revision {head}",
            remedy="use the release of Chainfolio that wrote it, or an empty store",
        )
    return current != head
