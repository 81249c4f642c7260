"""What a PostgreSQL server says of itself to the workers' role; read in one connection, changing nothing."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from harness.store.database import Database
from harness.store.held import OrderHeld, order_held
from harness.store.presence import Sign
from harness.store.revisions import VERSION_TABLE
from harness.store.schema import tables_of
from harness.store.store import Store

SETTINGS = (
    "client_encoding",
    "default_transaction_read_only",
    "fsync",
    "full_page_writes",
    "idle_in_transaction_session_timeout",
    "max_connections",
    "reserved_connections",
    "server_encoding",
    "statement_timeout",
    "superuser_reserved_connections",
    "synchronous_commit",
    "synchronous_standby_names",
    "transaction_timeout",
)
#: What the code does to each table.
RIGHTS = {
    "processed_jobs": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "inbox": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "dead_letters": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "audit_log": ("SELECT", "INSERT"),
    "order_places": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "harness_version": ("SELECT",),
}

_ABOUT = """
    SELECT current_setting('server_version_num')::int AS version, current_setting('server_version') AS version_text,
           current_user::text AS role, current_database()::text AS name, pg_is_in_recovery() AS standby,
           pg_backend_pid() AS pid, r.rolconnlimit AS role_limit, d.datconnlimit AS database_limit,
           EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = :schema) AS has_schema,
           EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = :schema
                   AND NOT has_schema_privilege(n.oid, 'USAGE')) AS closed
    FROM pg_roles r, pg_database d WHERE r.rolname = current_user AND d.datname = current_database()
"""
_TABLES = """
    SELECT c.relname::text, c.relpersistence::text, refused.verb
    FROM pg_class c LEFT JOIN LATERAL (
        SELECT verb FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS verb
        WHERE NOT has_table_privilege(c.oid, verb)
    ) refused ON true
    WHERE c.relnamespace = to_regnamespace(:schema) AND c.relkind IN ('r', 'p')
"""
_MAY_READ = "SELECT has_table_privilege(:table, 'SELECT')"
_OVERDUE = """
    SELECT count(*), coalesce(extract(epoch FROM max(now() - coalesce(leased_until, available_at))), 0)
    FROM {inbox} WHERE service = :service AND coalesce(leased_until, available_at) < now()
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """`value` in the setting's base unit; `source` as in pg_settings: default, database, user, configuration file."""

    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Server:
    """`skew`: this machine's clock minus the server's, in seconds; `skew_error`: by how much that may be wrong."""

    version: int
    version_text: str
    role: str
    name: str
    standby: bool
    role_limit: int
    database_limit: int
    settings: Mapping[str, Setting]
    pooled: bool
    skew: float
    skew_error: float
    revision: str | None = None
    unlogged: tuple[str, ...] = ()
    missing_rights: tuple[str, ...] = ()
    signs: tuple[Sign, ...] | None = None
    overdue: int = 0
    overdue_by: float = 0.0
    order: OrderHeld | None = None

    def setting(self, name: str) -> str:
        """The value, '' where this version has no such setting."""
        found = self.settings.get(name)
        return found.value if found else ""


def read(
    url: str, schema: str, service: str, clock: Callable[[], float] = time.time, *, thorough: bool = False
) -> Server:
    """Look at the server; `thorough`: also through the whole inbox. Raises DBAPIError where it can't be reached."""
    database = Database(url)
    try:
        with database.engine.connect() as connection:
            server = _read(connection, schema, service, clock)
            if thorough and server.revision is not None and not server.missing_rights:
                return replace(server, order=order_held(Session(connection), Store.of(schema), service))
            return server
    finally:
        database.dispose()


def _read(connection: Connection, schema: str, service: str, clock: Callable[[], float]) -> Server:
    about = connection.execute(text(_ABOUT), {"schema": schema}).mappings().one()
    rows = connection.execute(
        text("SELECT name, setting, source FROM pg_settings WHERE name = ANY(:names)"), {"names": list(SETTINGS)}
    )
    settings = {name: Setting(value, source) for name, value, source in rows}
    skew, skew_error = _skew(connection, clock)
    more: dict[str, Any] = {}
    if about["closed"]:
        more["missing_rights"] = (f"USAGE on schema {schema}",)
    elif about["has_schema"]:
        more = _tables(connection, schema, service)
    return Server(
        version=about["version"],
        version_text=about["version_text"],
        role=about["role"],
        name=about["name"],
        standby=about["standby"],
        role_limit=about["role_limit"],
        database_limit=about["database_limit"],
        settings=settings,
        # A pooler makes up the number that a client is told at login: the server's own is another one.
        pooled=connection.connection.driver_connection.get_backend_pid() != about["pid"],  # type: ignore[union-attr]
        skew=skew,
        skew_error=skew_error,
        **more,
    )


def _skew(connection: Connection, clock: Callable[[], float]) -> tuple[float, float]:
    """The best of three looks."""
    looks = []
    for _ in range(3):
        before = clock()
        theirs = float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
        after = clock()
        looks.append((max(after - before, 0.0) / 2, (before + after) / 2 - theirs))
    error, skew = min(looks)
    return skew, error


def _tables(connection: Connection, schema: str, service: str) -> dict[str, Any]:
    names, unlogged, missing = set(), set(), set()
    for table, persistence, verb in connection.execute(text(_TABLES), {"schema": schema}):
        names.add(table)
        if persistence == "u":
            unlogged.add(table)
        if verb in RIGHTS.get(table, ()):
            missing.add(f"{verb} on {table}")
    found: dict[str, Any] = {"unlogged": tuple(sorted(unlogged)), "missing_rights": tuple(sorted(missing))}
    if missing:
        return found
    if VERSION_TABLE in names:
        found["revision"] = connection.scalar(text(f"SELECT version_num FROM {schema}.{VERSION_TABLE}"))
    tables = tables_of(schema)
    if "inbox" in names:
        overdue = text(_OVERDUE.format(inbox=tables.inbox.fullname))
        count, seconds = connection.execute(overdue, {"service": service}).one()
        found |= {"overdue": count, "overdue_by": float(seconds)}
    if "presence" in names and connection.scalar(text(_MAY_READ), {"table": tables.presence.fullname}):
        found["signs"] = tuple(Store.of(schema).presence.seen(Session(connection), service))
    return found
