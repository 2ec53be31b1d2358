"""Migrations of the tail in PostgreSQL: one file per revision, run when the tail is opened.

The SQLite file has the same tables (`tail_schema.py`) and no migrations: it can be built again from the chain.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from chainfolio.storage import migrations

HEAD: Final = "0001"  # the newest revision in `versions`: a database with it needs no Alembic
VERSION_TABLE: Final = "tail_version"


def script(current: str | None) -> str:
    """Return the SQL of all migrations after the revision `current` (None: none yet)."""
    return migrations.script(Path(__file__).parent, "postgresql", current)
