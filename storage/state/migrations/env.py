"""What Alembic runs to write the SQL of the steps, in the words of one database."""

from __future__ import annotations

from alembic import context

from storage.state.schema import metadata

context.configure(
    dialect_name=context.config.attributes["dialect"],
    target_metadata=metadata,
    literal_binds=True,
    transactional_ddl=False,  # the transaction is the caller's
)
context.run_migrations()
