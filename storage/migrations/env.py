"""What Alembic runs: the steps, on the connection it was given, each in one transaction."""

from __future__ import annotations

from alembic import context

from storage.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transaction_per_migration=True,
    # SQLite rolls back changes of tables; Alembic does not expect it to.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
