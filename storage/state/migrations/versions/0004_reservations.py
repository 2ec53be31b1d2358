"""Index the reservations of the ledger by their call, so that only those that exist are settled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the index."""
    reserves = sa.text("kind = 'reserve'")
    op.create_index("ix_ledger_reserved", "ledger", ["call_id"], sqlite_where=reserves, postgresql_where=reserves)
