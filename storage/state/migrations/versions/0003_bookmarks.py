"""Where pages of lists ended, so that the next one goes on there while new blocks come."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

# Frozen here: a step describes the tables of its own day, not those of schema.py.
Long = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """One table more; nothing of the others changes."""
    op.create_table(
        "bookmarks",
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("question", sa.LargeBinary, nullable=False),
        sa.Column("position", Long, nullable=False),
        sa.Column("place", sa.LargeBinary, nullable=False),
        sa.Column("at_us", Long, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "question", "position", name="pk_bookmarks"),
        sqlite_strict=True,
    )
