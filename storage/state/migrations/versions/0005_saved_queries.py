"""Create the table of saved queries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

Long = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "saved_queries",
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("saved_us", Long, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "name", name="pk_saved_queries"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_saved_queries_account_id"),
        sqlite_strict=True,
    )
