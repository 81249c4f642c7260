"""Creates and upgrades the tables in a user's database, from the migrations that the package carries.

Each migration is a transaction of its own, so that its locks are held for its own time only. It waits for a lock no
longer than `Patience` says: whoever comes after it would wait behind it, the workers' statements too.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from alembic import command
from harness.store.database import Database
from harness.store.patience import Patience, patiently, take_turn
from harness.store.revisions import VERSION_TABLE, newest, revisions, scripts
from harness.store.schema import check_schema_name

_USUAL = Patience()


def upgrade(url: str, schema: str = "core", revision: str = "head", patience: Patience = _USUAL) -> None:
    """Bring the schema of the database at `url` up to `revision`; does nothing when it is there or beyond.

    Raises MigrationBlocked when another session's lock was in the way for too long; the migrations before that one
    stay. Raises alembic's CommandError for a revision that is not known here.
    """
    config, known = _config(schema), revisions()
    target = known.index(newest() if revision == "head" else _script(config).get_revision(revision).revision)

    def step(number: int, connection: Connection) -> None:
        if _position(config, known, connection, schema) < number:
            command.upgrade(_bound(config, connection), known[number])

    with _engine(url) as engine:
        with engine.connect() as connection:
            start = _position(config, known, connection, schema) + 1
        for number in range(start, target + 1):
            _run(engine, f"Migration {known[number]} of schema {schema!r}", patience, partial(step, number))


def downgrade(url: str, schema: str = "core", revision: str = "base", patience: Patience = _USUAL) -> None:
    """Take migrations back, in one transaction. `base` drops every table of the harness, with its data.

    Raises as `upgrade` does.
    """
    config = _config(schema)
    with _engine(url) as engine:
        what = f"The way down to {revision} of schema {schema!r}"
        _run(engine, what, patience, lambda connection: command.downgrade(_bound(config, connection), revision))


def current(url: str, schema: str = "core") -> str | None:
    """The revision that the database has, None for none."""
    with _engine(url) as engine, engine.connect() as connection:
        return _revision(connection, schema)


def sql(schema: str = "core", since: str | None = None, revision: str = "head", patience: Patience = _USUAL) -> str:
    """The statements that `upgrade` would send to a schema at `since` (None: without tables), for psql.

    Raises CommandError for a revision that is not known.
    """
    written = io.StringIO()
    config = _config(schema)
    config.output_buffer = written
    config.attributes["lock_timeout"] = patience.lock_timeout_ms
    config.attributes["from_base"] = since is None
    if since is not None:
        _script(config).get_revision(since)
    command.upgrade(config, f"{since or 'base'}:{revision}", sql=True)
    return written.getvalue()


def _config(schema: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["schema"] = check_schema_name(schema)
    return config


def _script(config: Config) -> ScriptDirectory:
    return ScriptDirectory.from_config(config)


def _bound(config: Config, connection: Connection) -> Config:
    config.attributes["connection"] = connection
    return config


def _revision(connection: Connection, schema: str) -> str | None:
    options = {"version_table": VERSION_TABLE, "version_table_schema": schema}
    return MigrationContext.configure(connection, opts=options).get_current_revision()


def _position(config: Config, known: list[str], connection: Connection, schema: str) -> int:
    """The place of the schema's revision among `known`; -1 without tables."""
    revision = _revision(connection, schema)
    return -1 if revision is None else known.index(_script(config).get_revision(revision).revision)


@contextmanager
def _engine(url: str) -> Iterator[Engine]:
    engine = Database(url).engine
    try:
        yield engine
    finally:
        engine.dispose()


def _run(engine: Engine, what: str, patience: Patience, migrate: Callable[[Connection], None]) -> None:
    def once(connection: Connection) -> None:
        take_turn(connection, patience)
        migrate(connection)

    patiently(engine, what, patience, once)
