"""The migrations: there, back and there again, on a full database; and the same tables as the models."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, text

from harness.core.errors import ConfigError
from harness.store import migrate
from harness.store.database import Database
from harness.store.migrate import current, downgrade, upgrade
from harness.store.revisions import newest, revisions
from harness.store.schema import tables_of
from tests.letters import Place

#: All that PostgreSQL knows of a schema's tables, without the schema's name in it.
CATALOG = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
               pg_get_expr(d.adbin, d.adrelid)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = to_regnamespace(:schema) AND c.relkind IN ('r', 'p') AND c.relname <> 'harness_version'
    """,
    "order": """
        SELECT c.relname, array_agg(a.attname ORDER BY a.attnum)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = to_regnamespace(:schema) AND c.relkind IN ('r', 'p') AND c.relname <> 'harness_version'
        GROUP BY 1
    """,
    "constraints": """
        SELECT c.relname, k.conname, pg_get_constraintdef(k.oid)
        FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
        WHERE c.relnamespace = to_regnamespace(:schema) AND c.relname <> 'harness_version'
    """,
    "indexes": """
        SELECT tablename, indexname, replace(indexdef, :schema || '.', '') FROM pg_indexes
        WHERE schemaname = :schema AND tablename <> 'harness_version'
    """,
    "sequences": """
        SELECT sequencename, data_type::text, start_value, min_value, max_value, increment_by, cycle FROM pg_sequences
        WHERE schemaname = :schema
    """,
}


def catalog(engine: Engine, schema: str) -> dict[str, list[str]]:
    with engine.connect() as connection:
        return {
            name: sorted(repr(tuple(row)) for row in connection.execute(text(query), {"schema": schema}))
            for name, query in CATALOG.items()
        }


@pytest.fixture
def empty(empty_database: str) -> Iterator[Place]:
    place = Place(empty_database)
    yield place
    place.database.dispose()


def test_models_and_migrations_are_the_same(empty: Place) -> None:
    upgrade(empty.url, "migrated")
    with empty.database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA modelled")
        tables_of("modelled").metadata.create_all(connection)
    migrated, modelled = (catalog(empty.database.engine, schema) for schema in ("migrated", "modelled"))
    for name in CATALOG:
        assert migrated[name] == modelled[name], name
        assert len(migrated[name]) > 0
    assert len(migrated["columns"]) > 70


def test_up_down_up_on_a_full_database(empty: Place) -> None:
    place = empty
    assert current(place.url) is None
    upgrade(place.url)
    assert current(place.url) == newest()
    fresh = catalog(place.database.engine, "core")

    place.done("done")
    place.wait("waits")
    letter = place.dead("dead")
    from harness.replay import discard

    discard(place.database, place.store, "billing", letter, "ann", place.events, "no need")
    upgrade(place.url)
    assert len(place.run("SELECT 1 FROM core.processed_jobs")) == 3

    downgrade(place.url)
    assert current(place.url) is None
    assert catalog(place.database.engine, "core") == {name: [] for name in CATALOG}
    left = place.run("SELECT proname::text FROM pg_proc WHERE pronamespace = 'core'::regnamespace")
    assert left == []

    upgrade(place.url)
    assert catalog(place.database.engine, "core") == fresh
    assert place.one("SELECT count(*) FROM core.dead_letters") == 0
    assert place.dead("dead") == 1


def test_two_deploys_at_once(empty: Place) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(3)

    def deploy() -> None:
        start.wait()
        try:
            upgrade(empty.url)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=deploy) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert current(empty.url) == newest()


def test_two_schemas_in_one_database_live_apart(empty: Place) -> None:
    upgrade(empty.url, "one")
    upgrade(empty.url, "two")
    downgrade(empty.url, "one")
    assert (current(empty.url, "one"), current(empty.url, "two")) == (None, newest())


@pytest.mark.parametrize("schema", ['a"b', "Core", "a-b", "", "1a", "a;b", "x" * 64])
def test_names_that_are_not_plain_are_refused(schema: str) -> None:
    with pytest.raises(ConfigError, match="plain"):
        upgrade("postgresql://nowhere/none", schema)


def test_the_right_to_create_schemas_is_not_needed_where_there_is_one(empty: Place) -> None:
    role = f"poor_{empty.url.rpartition('/')[2]}"
    empty.run(f"CREATE ROLE {role} LOGIN PASSWORD 'poor'; CREATE SCHEMA core AUTHORIZATION {role}")
    try:
        poor = Database(empty.url).url.set(username=role, password="poor").render_as_string(hide_password=False)
        upgrade(poor)
        upgrade(poor)
        assert current(poor) == newest()
    finally:
        empty.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_the_files_are_named_after_their_revisions() -> None:
    """`revisions` reads the names alone; Alembic reads the files."""
    script = migrate._script(migrate._config("core"))
    assert revisions() == [one.revision for one in script.walk_revisions()][::-1]
    assert script.get_current_head() == newest()


def test_a_worker_imports_neither_alembic_nor_sentry() -> None:
    code = "import harness, harness.worker.harness, sys; print({'alembic', 'sentry_sdk'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
