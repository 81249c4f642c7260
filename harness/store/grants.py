"""What a role needs that works with the tables without owning them: worker, relay, beat, operator."""

from sqlalchemy.dialects import postgresql

from harness.store.revisions import VERSION_TABLE
from harness.store.schema import check_schema_name, tables_of

_ALL = "SELECT, INSERT, UPDATE, DELETE"
#: Nobody changes what is written there.
_APPEND_ONLY = {"audit_log": "SELECT, INSERT", "audit_seals": "SELECT, INSERT"}


def grants(schema: str, role: str) -> list[str]:
    """The GRANT statements for `role` on the tables of `schema`, without semicolons; run by their owner."""
    to = postgresql.dialect().identifier_preparer.quote_identifier(role)  # type: ignore[no-untyped-call]
    tables = tables_of(check_schema_name(schema))
    statements = [f"GRANT USAGE ON SCHEMA {schema} TO {to}"]
    for table in tables.metadata.sorted_tables:
        statements.append(f"GRANT {_APPEND_ONLY.get(table.name, _ALL)} ON {table.fullname} TO {to}")
    statements.append(f"GRANT USAGE ON SEQUENCE {schema}.{tables.inbox.info['generation'].name} TO {to}")
    statements.append(f"GRANT SELECT ON {schema}.{VERSION_TABLE} TO {to}")
    return statements
