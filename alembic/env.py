"""Runs the migrations, for `harness.store.migrate` and for the `alembic` command of developers.

The command reads the database from HARNESS_DATABASE_URL and the schema from HARNESS_SCHEMA (default `core`).
"""

import os

from sqlalchemy import Connection, create_engine, text

from alembic import context
from harness.store.schema import check_schema_name, tables_of

config = context.config
schema = check_schema_name(config.attributes.get("schema") or os.environ.get("HARNESS_SCHEMA", "core"))


def run(connection: Connection) -> None:
    # IF NOT EXISTS alone asks for the right to create schemas even where it is there.
    if connection.execute(text("SELECT to_regnamespace(:name) IS NULL"), {"name": schema}).scalar_one():
        connection.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{schema}"'))
    context.configure(
        connection=connection,
        target_metadata=tables_of(schema).metadata,
        version_table="harness_version",
        version_table_schema=schema,
        include_schemas=True,
        include_name=lambda name, kind, parents: kind != "schema" or name == schema,
    )
    with context.begin_transaction():
        context.run_migrations()


def write() -> None:
    """For people who run the statements by hand. The waits for locks are bounded, as online."""
    context.configure(
        dialect_name="postgresql",
        dialect_opts={"paramstyle": "named"},  # psycopg2's own would double each % of a function's text
        version_table="harness_version",
        version_table_schema=schema,
        literal_binds=True,
        transaction_per_migration=True,
    )
    context.execute(f"SET lock_timeout = {config.attributes.get('lock_timeout', 3000)}")
    if config.attributes.get("from_base", True):
        context.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    write()
else:
    given = config.attributes.get("connection")
    if given is not None:
        run(given)
    else:
        with create_engine(os.environ["HARNESS_DATABASE_URL"]).begin() as opened:
            run(opened)
