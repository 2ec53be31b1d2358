"""Accounts, their grants, keys and ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# Frozen here: a step describes the tables of its own day, not those of schema.py.
Long = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables; rows of the ledger can be added and nothing else."""
    op.create_table(
        "accounts",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("plan_expires_us", Long),
        sa.Column("created_us", Long, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_accounts"),
        sqlite_strict=True,
    )
    op.create_table(
        "grants",
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "name", name="pk_grants"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_grants_account_id"),
        sqlite_strict=True,
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("hint", sa.Text, nullable=False),
        sa.Column("created_us", Long, nullable=False),
        sa.Column("expires_us", Long),
        sa.Column("revoked_us", Long),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_keys_account_id"),
        sa.UniqueConstraint("hash", name="uq_keys_hash"),
        sqlite_strict=True,
    )
    op.create_index("ix_keys_account_id", "keys", ["account_id"])
    op.create_table(
        "ledger",
        sa.Column("id", Long, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("at_us", Long, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("amount", Long, nullable=False),
        sa.Column("memo", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ledger"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_ledger_account_id"),
        sqlite_strict=True,
    )
    op.create_index("ix_ledger_account_id", "ledger", ["account_id"])
    if op.get_context().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER ledger_no_{change.lower()} BEFORE {change} ON ledger "
                "BEGIN SELECT RAISE(ABORT, 'rows of the ledger stay as they are'); END"
            )
