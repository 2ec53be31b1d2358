"""Create the table of recurring jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

Long = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "jobs",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("chain", sa.Text, nullable=False),
        sa.Column("began_us", Long, nullable=False),
        sa.Column("ended_us", Long),
        sa.Column("duration_us", Long),
        sa.Column("error", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", "chain", name="pk_jobs"),
        sqlite_strict=True,
    )
