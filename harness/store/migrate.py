"""Creates and upgrades the tables in a user's database, from the migrations that the package carries."""

from pathlib import Path

from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from alembic import command
from harness.store.database import Database
from harness.store.schema import check_schema_name

_PACKAGE = Path(__file__).resolve().parent.parent
#: Any number serves, as long as every release uses the same: two deploys that migrate at once go one after the other.
_LOCK = 7_061_995_114


def scripts() -> Path:
    """Where the migrations are: inside an installed package, beside it in a source tree."""
    installed = _PACKAGE / "migrations"
    return installed if installed.is_dir() else _PACKAGE.parent / "alembic"


def _config(schema: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["schema"] = check_schema_name(schema)
    return config


def upgrade(url: str, schema: str = "core", revision: str = "head") -> None:
    """Bring the schema of the database at `url` up to `revision`; does nothing when it is there."""
    _run(url, schema, revision, down=False)


def downgrade(url: str, schema: str = "core", revision: str = "base") -> None:
    """Take migrations back. `base` drops every table of the harness, with its data."""
    _run(url, schema, revision, down=True)


def _run(url: str, schema: str, revision: str, *, down: bool) -> None:
    config = _config(schema)
    engine = Database(url).engine
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            config.attributes["connection"] = connection
            (command.downgrade if down else command.upgrade)(config, revision)
    finally:
        engine.dispose()


def current(url: str, schema: str = "core") -> str | None:
    """The revision that the database has, None for none."""
    engine = Database(url).engine
    try:
        with engine.connect() as connection:
            context = MigrationContext.configure(
                connection, opts={"version_table": "harness_version", "version_table_schema": schema}
            )
            return context.get_current_revision()
    finally:
        engine.dispose()


def newest() -> str | None:
    """The revision that this release of the package needs."""
    return ScriptDirectory.from_config(_config("core")).get_current_head()


def steps_behind(revision: str | None) -> int | None:
    """How many revisions older than this release the tables are; None where it does not know `revision`.

    0: up to date. Without a revision there are no tables, which is all the revisions behind.
    """
    known = [script.revision for script in ScriptDirectory.from_config(_config("core")).walk_revisions()]
    if revision is None:
        return len(known)
    return known.index(revision) if revision in known else None
