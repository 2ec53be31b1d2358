"""The tables of the state store as SQLAlchemy Core values: the one place from which SQL for every database is made."""

from __future__ import annotations

import sqlalchemy as sa

# The newest revision in migrations/versions: a database that stands there needs no Alembic at all.
HEAD = "0001"

# SQLite's strict tables know INTEGER alone, which has 64 bits there.
Long = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("plan_expires_us", Long, comment="when the plan lapses; null is never"),
    sa.Column("created_us", Long, nullable=False),
    sqlite_strict=True,
)

grants = sa.Table(
    "grants",
    metadata,
    sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.id"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sqlite_strict=True,
)

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.id"), nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False, unique=True, comment="HMAC-SHA256 of the key under the pepper"),
    sa.Column("hint", sa.Text, nullable=False, comment="the key's last four characters, for people to tell keys apart"),
    sa.Column("created_us", Long, nullable=False),
    sa.Column("expires_us", Long),
    sa.Column("revoked_us", Long),
    sqlite_strict=True,
)

ledger = sa.Table(
    "ledger",
    metadata,
    sa.Column("id", Long, primary_key=True, autoincrement=True),
    sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.id"), nullable=False, index=True),
    sa.Column("at_us", Long, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("amount", Long, nullable=False, comment="credits; the balance of an account is the sum of its rows"),
    sa.Column("memo", sa.Text, nullable=False),
    sqlite_strict=True,
)
