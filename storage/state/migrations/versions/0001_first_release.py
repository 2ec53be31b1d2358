"""Create all tables of the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# Columns are written out: schema.py describes the tables of the newest revision, this file those of the first one.
Long = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables. Rows of `ledger` and `audit` can be added, and not changed."""
    _create_account_tables()
    _create_credits()
    _create_request_tables()
    _create_tenant_tables()
    _create_audit()
    _forbid_changes("ledger")
    _forbid_changes("audit")


def _create_account_tables() -> None:
    """Create the tables of accounts, of their grants and of their API keys."""
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


def _create_credits() -> None:
    op.create_table(
        "ledger",
        sa.Column("id", Long, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("at_us", Long, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("amount", Long, nullable=False),
        sa.Column("debit", sa.Text, nullable=False),
        sa.Column("credit", sa.Text, nullable=False),
        sa.Column("call_id", Long),
        sa.Column("memo", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ledger"),
        sa.CheckConstraint("amount > 0", name=op.f("ck_ledger_amount")),
        sqlite_strict=True,
    )
    op.create_index("ix_ledger_account_id", "ledger", ["account_id"])
    settles = sa.text("kind IN ('post', 'void', 'expire')")
    op.create_index(
        "uq_ledger_settled",
        "ledger",
        ["call_id"],
        unique=True,
        sqlite_where=settles,
        postgresql_where=settles,
    )
    op.create_table(
        "balances",
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("available", Long, nullable=False),
        sa.Column("held", Long, nullable=False),
        sa.Column("earned", Long, nullable=False),
        sa.PrimaryKeyConstraint("account_id", name="pk_balances"),
        sa.CheckConstraint("available >= 0 AND held >= 0 AND earned >= 0", name=op.f("ck_balances_not_negative")),
        sqlite_strict=True,
    )
    op.create_table(
        "marks",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", Long, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_marks"),
        sqlite_strict=True,
    )
    op.execute("INSERT INTO marks VALUES ('access', 0), ('settled', 0)")


def _create_request_tables() -> None:
    op.create_table(
        "buckets",
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("moments", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("key_id", "name", name="pk_buckets"),
        sqlite_strict=True,
    )
    op.create_table(
        "idempotency",
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.LargeBinary, nullable=False),
        sa.Column("claimed_us", Long, nullable=False),
        sa.Column("status", Long),
        sa.Column("content_type", sa.Text),
        sa.Column("body", sa.LargeBinary),
        sa.Column("digest", sa.LargeBinary),
        sa.PrimaryKeyConstraint("account_id", "name", name="pk_idempotency"),
        sqlite_strict=True,
    )
    op.create_index("ix_idempotency_claimed_us", "idempotency", ["claimed_us"])
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
    op.create_index("ix_bookmarks_at_us", "bookmarks", ["at_us"])


def _create_owned_table(table: str, *columns: sa.Column[object] | sa.Constraint) -> None:
    owner = sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=f"fk_{table}_account_id")
    op.create_table(table, sa.Column("account_id", sa.Text, nullable=False), *columns, owner, sqlite_strict=True)


def _create_tenant_tables() -> None:
    _create_owned_table(
        "quotas",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", Long, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "name", name="pk_quotas"),
    )
    _create_owned_table(
        "addressbook",
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("position", Long, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("expires_us", Long),
        sa.Column("owner_authorized", Long, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "address", name="pk_addressbook"),
    )
    _create_owned_table(
        "bundles",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("position", Long, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("members", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_bundles"),
        sa.UniqueConstraint("account_id", "name", name="uq_bundles_account_id"),
        sa.UniqueConstraint("account_id", "members", name="uq_bundles_members"),
    )
    op.create_table(
        "bundle_members",
        sa.Column("bundle_id", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("position", Long, nullable=False),
        sa.PrimaryKeyConstraint("bundle_id", "address", name="pk_bundle_members"),
        sa.ForeignKeyConstraint(["bundle_id"], ["bundles.id"], name="fk_bundle_members_bundle_id"),
        sqlite_strict=True,
    )
    _create_owned_table(
        "delegations",
        sa.Column("delegate_id", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "delegate_id", name="pk_delegations"),
        sa.ForeignKeyConstraint(["delegate_id"], ["accounts.id"], name="fk_delegations_delegate_id"),
    )
    _create_owned_table(
        "subscriptions",
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("began_us", Long, nullable=False),
        sa.Column("expires_us", Long, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "address", name="pk_subscriptions"),
    )
    _create_owned_table(
        "virtual_users",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("position", Long, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_virtual_users"),
    )


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", Long, nullable=False),
        sa.Column("at_us", Long, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sqlite_strict=True,
    )
    op.create_index("ix_audit_account_id", "audit", ["account_id"])


def _forbid_changes(table: str) -> None:
    if op.get_context().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, 'rows of the {table} stay as they are'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION {table}_stays() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'rows of the {table} stay as they are'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_stays()"
    )
