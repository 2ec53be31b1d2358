"""Answers that can be made again are kept as their digest; what is old is found without looking at everything."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """One column and two indexes more."""
    op.add_column("idempotency", sa.Column("digest", sa.LargeBinary))
    op.create_index("ix_idempotency_claimed_us", "idempotency", ["claimed_us"])
    op.create_index("ix_bookmarks_at_us", "bookmarks", ["at_us"])
