"""The script that Alembic runs to write the SQL of the tail's migrations."""

from __future__ import annotations

from alembic import context

from chainfolio.storage.tail_migrations import VERSION_TABLE

context.configure(
    dialect_name=context.config.attributes["dialect"],
    version_table=VERSION_TABLE,  # the state store may be in the same database
    literal_binds=True,
    transactional_ddl=False,  # the transaction is the caller's
)
context.run_migrations()
