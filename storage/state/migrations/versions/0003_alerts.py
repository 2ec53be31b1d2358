"""Create the tables of alerts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

Long = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "alert_targets",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("secrets", sa.Text, nullable=False),
        sa.Column("next_us", Long),
        sa.Column("failures", Long, nullable=False),
        sa.Column("claim", Long, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_alert_targets"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_alert_targets_account_id"),
        sa.UniqueConstraint("account_id", "kind", "address", name="uq_alert_targets_account_id"),
        sqlite_strict=True,
    )
    op.create_index("ix_alert_targets_next_us", "alert_targets", ["next_us"])
    op.create_table(
        "alert_rules",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("bound", sa.Text, nullable=False),
        sa.Column("target_id", sa.Text, nullable=False),
        sa.Column("starts", sa.Text, nullable=False),
        sa.Column("created_us", Long, nullable=False),
        sa.Column("active", sa.Text, nullable=False),
        sa.Column("checked_us", Long, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_alert_rules"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_alert_rules_account_id"),
        sa.ForeignKeyConstraint(["target_id"], ["alert_targets.id"], name="fk_alert_rules_target_id"),
        sqlite_strict=True,
    )
    op.create_index("ix_alert_rules_account_id", "alert_rules", ["account_id"])
    op.create_table(
        "alert_cursors",
        sa.Column("chain", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("height", Long, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("final", Long, nullable=False),
        sa.PrimaryKeyConstraint("chain", "account", name="pk_alert_cursors"),
        sqlite_strict=True,
    )
    _create_deliveries()


def _create_deliveries() -> None:
    op.create_table(
        "alert_deliveries",
        sa.Column("seq", Long, nullable=False, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("target_id", sa.Text, nullable=False),
        sa.Column("rule_id", sa.Text, nullable=False),
        sa.Column("chain", sa.Text, nullable=False),
        sa.Column("height", Long),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("created_us", Long, nullable=False),
        sa.Column("queued_us", Long, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", Long, nullable=False),
        sa.Column("attempted_us", Long),
        sa.Column("status", Long),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("corrected", Long, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_alert_deliveries"),
        sa.UniqueConstraint("id", name="uq_alert_deliveries_id"),
        sqlite_strict=True,
    )
    op.create_index("ix_alert_deliveries_pending", "alert_deliveries", ["target_id", "state", "seq"])
    op.create_index("ix_alert_deliveries_block", "alert_deliveries", ["chain", "height"])
    op.create_index("ix_alert_deliveries_account", "alert_deliveries", ["account_id", "seq"])
