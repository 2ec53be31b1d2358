"""The tables of the state store in SQLAlchemy Core, from which the SQL for each database is made."""

from __future__ import annotations

import sqlalchemy as sa

# The newest revision in migrations/versions: a database with it needs no Alembic.
HEAD = "0005"

# SQLite's strict tables have only INTEGER, of 64 bits.
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


def _owner(*, key: bool = False) -> sa.Column[str]:
    return sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.id"), nullable=False, primary_key=key)


# --- credits ---------------------------------------------------------------------------------------------------------

SETTLED = sa.text("kind IN ('post', 'void', 'expire')")
RESERVED = sa.text("kind = 'reserve'")

# Every row moves `amount` credits of one account from one place to another: `operator`, `available`, `held`, `earned`.
ledger = sa.Table(
    "ledger",
    metadata,
    sa.Column("id", Long, primary_key=True, autoincrement=True),
    sa.Column("account_id", sa.Text, nullable=False, index=True),
    sa.Column("at_us", Long, nullable=False),
    sa.Column("kind", sa.Text, nullable=False, comment="grant, adjust, reserve, post, void or expire"),
    sa.Column("amount", Long, nullable=False, comment="credits, above zero"),
    sa.Column("debit", sa.Text, nullable=False, comment="where they were"),
    sa.Column("credit", sa.Text, nullable=False, comment="where they are now"),
    sa.Column("call_id", Long, comment="the call that they were reserved for"),
    sa.Column("memo", sa.Text, nullable=False, comment="why; for a call its key and its X-Request-Id"),
    sa.CheckConstraint("amount > 0", name="amount"),
    # A reservation is posted, voided or expired once.
    sa.Index("uq_ledger_settled", "call_id", unique=True, sqlite_where=SETTLED, postgresql_where=SETTLED),
    sa.Index("ix_ledger_reserved", "call_id", sqlite_where=RESERVED, postgresql_where=RESERVED),
    sqlite_strict=True,
)

balances = sa.Table(
    "balances",
    metadata,
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("available", Long, nullable=False, comment="always the sum of the account's rows in the ledger"),
    sa.Column("held", Long, nullable=False),
    sa.Column("earned", Long, nullable=False),
    sa.CheckConstraint("available >= 0 AND held >= 0 AND earned >= 0", name="not_negative"),
    sqlite_strict=True,
)

marks = sa.Table(
    "marks",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column(
        "value",
        Long,
        nullable=False,
        comment="access: changes so far; secret: its mark; settled: a row of the ledger; started: a moment",
    ),
    sqlite_strict=True,
)

buckets = sa.Table(
    "buckets",
    metadata,
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("moments", sa.LargeBinary, nullable=False, comment="when requests were let in, as int64 microseconds"),
    sqlite_strict=True,
)

idempotency = sa.Table(
    "idempotency",
    metadata,
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True, comment="the Idempotency-Key"),
    sa.Column("fingerprint", sa.LargeBinary, nullable=False, comment="SHA-256 of method, path, query and body"),
    sa.Column("claimed_us", Long, nullable=False, index=True),
    sa.Column("status", Long, comment="null until the transaction that claims it ends"),
    sa.Column("content_type", sa.Text),
    sa.Column("body", sa.LargeBinary, comment="null where the answer is made again"),
    sa.Column("digest", sa.LargeBinary, comment="SHA-256 of the body where that is not kept"),
    sqlite_strict=True,
)

bookmarks = sa.Table(
    "bookmarks",
    metadata,
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("question", sa.LargeBinary, primary_key=True, comment="SHA-256 of what was asked, but for the page"),
    sa.Column("position", Long, primary_key=True, comment="how many items came before"),
    sa.Column("place", sa.LargeBinary, nullable=False, comment="the last of them, as the list's reader writes it"),
    sa.Column("at_us", Long, nullable=False, index=True),
    sqlite_strict=True,
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("chain", sa.Text, primary_key=True, comment="empty for a job of no chain"),
    sa.Column("began_us", Long, nullable=False, comment="of the last run"),
    sa.Column("ended_us", Long, comment="of the last run that has ended"),
    sa.Column("duration_us", Long),
    sa.Column("error", sa.Text, nullable=False, comment="why that run failed; empty if it did not"),
    sqlite_strict=True,
)

# --- what tenants keep -----------------------------------------------------------------------------------------------

quotas = sa.Table(
    "quotas",
    metadata,
    _owner(key=True),
    sa.Column("name", sa.Text, primary_key=True, comment="addressbook, bundles or bundle-size"),
    sa.Column("value", Long, nullable=False),
    sqlite_strict=True,
)

entries = sa.Table(
    "addressbook",
    metadata,
    _owner(key=True),
    sa.Column("address", sa.Text, primary_key=True),
    sa.Column("position", Long, nullable=False, comment="the order in which entries were added"),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("expires_us", Long, comment="when the plan lapses; null on FREE"),
    sa.Column("owner_authorized", Long, nullable=False, comment="1 where the wallet's owner authorised it"),
    sqlite_strict=True,
)

bundles = sa.Table(
    "bundles",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _owner(),
    sa.Column("position", Long, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("members", sa.LargeBinary, nullable=False, comment="SHA-256 of the members in order of their addresses"),
    sa.UniqueConstraint("account_id", "name"),
    sa.UniqueConstraint("account_id", "members", name="uq_bundles_members"),
    sqlite_strict=True,
)

bundle_members = sa.Table(
    "bundle_members",
    metadata,
    sa.Column("bundle_id", sa.Text, sa.ForeignKey("bundles.id"), primary_key=True),
    sa.Column("address", sa.Text, primary_key=True),
    sa.Column("position", Long, nullable=False),
    sqlite_strict=True,
)

delegations = sa.Table(
    "delegations",
    metadata,
    _owner(key=True),
    sa.Column("delegate_id", sa.Text, sa.ForeignKey("accounts.id"), primary_key=True, comment="who may act for it"),
    sqlite_strict=True,
)

subscriptions = sa.Table(
    "subscriptions",
    metadata,
    _owner(key=True),
    sa.Column("address", sa.Text, primary_key=True),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("began_us", Long, nullable=False),
    sa.Column("expires_us", Long, nullable=False),
    sqlite_strict=True,
)

virtual_users = sa.Table(
    "virtual_users",
    metadata,
    sa.Column("id", sa.Text, primary_key=True, comment="the UUID of virtual:<id>"),
    _owner(),
    sa.Column("position", Long, nullable=False),
    sa.Column("type", sa.Text, nullable=False, comment="BALANCE, CEX or GROUP"),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("document", sa.Text, nullable=False, comment="what it holds, as JSON"),
    sqlite_strict=True,
)

saved_queries = sa.Table(
    "saved_queries",
    metadata,
    _owner(key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("query", sa.Text, nullable=False, comment="one SELECT over the lake, as it was sent"),
    sa.Column("saved_us", Long, nullable=False),
    sqlite_strict=True,
)

# --- alerts ----------------------------------------------------------------------------------------------------------

alert_targets = sa.Table(
    "alert_targets",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _owner(),
    sa.Column("kind", sa.Text, nullable=False, comment="webhook, command or file"),
    sa.Column("address", sa.Text, nullable=False, comment="the URL, command line or path"),
    sa.Column("secrets", sa.Text, nullable=False, comment="numbers of valid secrets with their ends, as JSON"),
    sa.Column("next_us", Long, index=True, comment="when to send next; null if nothing is pending"),
    sa.Column("failures", Long, nullable=False, comment="failed attempts since the last success"),
    sa.Column("claim", Long, nullable=False, comment="number of claims; a result counts for the last one"),
    sa.UniqueConstraint("account_id", "kind", "address"),
    sqlite_strict=True,
)

alert_rules = sa.Table(
    "alert_rules",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.id"), nullable=False, index=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False, comment="address, asset, validator, job or endpoint; empty: all"),
    sa.Column("bound", sa.Text, nullable=False, comment="over or under a decimal, such as `over 100`; empty: none"),
    sa.Column("target_id", sa.Text, sa.ForeignKey("alert_targets.id"), nullable=False),
    sa.Column("starts", sa.Text, nullable=False, comment="height of each chain above which events count, as JSON"),
    sa.Column("created_us", Long, nullable=False),
    sa.Column("active", sa.Text, nullable=False, comment="what the condition holds for, as JSON; empty: nothing"),
    sa.Column("checked_us", Long, nullable=False, comment="last check of the condition; 0: never"),
    sa.Column("problem", sa.Text, nullable=False, comment="why the last check failed; empty if it did not"),
    sqlite_strict=True,
)

alert_cursors = sa.Table(
    "alert_cursors",
    metadata,
    sa.Column("chain", sa.Text, primary_key=True),
    sa.Column("account", sa.Text, primary_key=True, comment="empty: all accounts of a chain that is indexed whole"),
    sa.Column("height", Long, nullable=False, comment="the last height whose events are stored"),
    sa.Column("hash", sa.Text, nullable=False, comment="of the highest replaceable block up to there; empty: none"),
    sa.Column("final", Long, nullable=False, comment="up to here, the rows were final"),
    sqlite_strict=True,
)

alert_deliveries = sa.Table(
    "alert_deliveries",
    metadata,
    sa.Column("seq", Long, primary_key=True, autoincrement=True),
    sa.Column("id", sa.Text, nullable=False, unique=True, comment="digest of the event, sent as webhook-id"),
    sa.Column("account_id", sa.Text, nullable=False),
    sa.Column("target_id", sa.Text, nullable=False),
    sa.Column("rule_id", sa.Text, nullable=False),
    sa.Column("chain", sa.Text, nullable=False, comment="empty for an event of no chain"),
    sa.Column("height", Long, comment="null for an event of no block"),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("created_us", Long, nullable=False),
    sa.Column("queued_us", Long, nullable=False, comment="since when it is tried; a replay begins anew"),
    sa.Column("state", sa.Text, nullable=False, comment="pending, done or dead"),
    sa.Column("attempts", Long, nullable=False),
    sa.Column("attempted_us", Long),
    sa.Column("status", Long, comment="HTTP status of the last attempt"),
    sa.Column("error", sa.Text, nullable=False, comment="why the last attempt failed"),
    sa.Column("corrected", Long, nullable=False, comment="1 if a correction was stored: its block left the chain"),
    sa.Index("ix_alert_deliveries_pending", "target_id", "state", "seq"),
    sa.Index("ix_alert_deliveries_block", "chain", "height"),
    sa.Index("ix_alert_deliveries_account", "account_id", "seq"),
    sqlite_strict=True,
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", Long, primary_key=True, autoincrement=True),
    sa.Column("at_us", Long, nullable=False),
    sa.Column("actor", sa.Text, nullable=False, comment="operator, or the key that acted"),
    sa.Column("account_id", sa.Text, nullable=False, index=True),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False, comment="JSON; never a secret"),
    sqlite_strict=True,
)
