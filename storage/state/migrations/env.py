"""The script that Alembic runs to write the SQL of the migrations for one database."""

from __future__ import annotations

from alembic import context

from chainfolio.storage.state.schema import metadata

context.configure(
    dialect_name=context.config.attributes["dialect"],
    target_metadata=metadata,
    literal_binds=True,
    transactional_ddl=False,  # the transaction is the caller's
)
context.run_migrations()
