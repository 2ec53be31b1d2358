"""Double-entry credits, rate buckets, and what tenants keep: address book, bundles, subscriptions, virtual users."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# Frozen here: a step describes the tables of its own day, not those of schema.py.
Long = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Turn the rows of the first ledger, which were all grants, into those of the second; then the other tables."""
    op.rename_table("ledger", "ledger_0001")
    op.drop_index("ix_ledger_account_id", "ledger_0001")
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE ledger_0001 RENAME CONSTRAINT pk_ledger TO pk_ledger_0001")
        op.execute("ALTER SEQUENCE ledger_id_seq RENAME TO ledger_0001_id_seq")
    _credits()
    op.execute(
        "INSERT INTO ledger (account_id, at_us, kind, amount, debit, credit, memo) "
        "SELECT account_id, at_us, 'grant', amount, 'operator', 'available', memo FROM ledger_0001 ORDER BY id"
    )
    op.execute(
        "INSERT INTO balances SELECT a.id, COALESCE((SELECT SUM(amount) FROM ledger l WHERE l.account_id = a.id), 0), "
        "0, 0 FROM accounts a"
    )
    op.drop_table("ledger_0001")
    _kept()
    _append_only("ledger")
    _append_only("audit")


def _credits() -> None:
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
    settled = sa.text("kind IN ('post', 'void', 'expire')")
    op.create_index(
        "uq_ledger_settled", "ledger", ["call_id"], unique=True, sqlite_where=settled, postgresql_where=settled
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
        sa.PrimaryKeyConstraint("account_id", "name", name="pk_idempotency"),
        sqlite_strict=True,
    )


def _owned(table: str, *columns: sa.Column[object] | sa.Constraint) -> None:
    owner = sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=f"fk_{table}_account_id")
    op.create_table(table, sa.Column("account_id", sa.Text, nullable=False), *columns, owner, sqlite_strict=True)


def _kept() -> None:
    _owned(
        "quotas",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", Long, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "name", name="pk_quotas"),
    )
    _owned(
        "addressbook",
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("position", Long, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("expires_us", Long),
        sa.Column("owner_authorized", Long, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "address", name="pk_addressbook"),
    )
    _owned(
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
    _owned(
        "delegations",
        sa.Column("delegate_id", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "delegate_id", name="pk_delegations"),
        sa.ForeignKeyConstraint(["delegate_id"], ["accounts.id"], name="fk_delegations_delegate_id"),
    )
    _owned(
        "subscriptions",
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("began_us", Long, nullable=False),
        sa.Column("expires_us", Long, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "address", name="pk_subscriptions"),
    )
    _owned(
        "virtual_users",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("position", Long, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_virtual_users"),
    )
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


def _append_only(table: str) -> None:
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
