"""For a DBA: the SQL to be run by hand, the GRANTs of a role that owns nothing, and where a schema stands."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy.engine import make_url

from harness.dev import pgbinaries
from harness.store import migrate, revisions
from harness.store.database import Database
from harness.store.grants import grants
from tests.cli.conftest import Shell
from tests.letters import Place
from tests.migration.releases import this
from tests.migration.scenario import Scene, play
from tests.services import run_sql
from tests.store.test_migrations import catalog

KNOWN = revisions.revisions()


def psql(url: str, statements: str) -> None:
    """As docs/howto/upgrades.md says it."""
    command = [str(pgbinaries.find(None) / "psql"), "--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", url]
    done = subprocess.run(command, input=statements, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("schema", ["core", "elsewhere"])
def test_the_sql_by_hand_makes_the_same_tables(empty_database: str, schema: str) -> None:
    shell = Shell(empty_database, schema=schema)
    statements = shell("migrate", "--sql").stdout
    assert statements.startswith("SET lock_timeout = 3000;")
    assert migrate.current(empty_database, schema) is None
    psql(empty_database, statements)
    assert migrate.current(empty_database, schema) == KNOWN[-1]
    shell("migrate", "--check")
    migrate.upgrade(empty_database, "usual")
    engine = Database(empty_database).engine
    by_hand, usual = catalog(engine, schema), catalog(engine, "usual")
    engine.dispose()
    for name in usual:
        assert [row.replace(schema, "usual") for row in by_hand[name]] == usual[name], name
    triggers = run_sql(empty_database, "SELECT tgname FROM pg_trigger WHERE tgname = 'audit_log_append_only'")
    assert len(triggers) == 2
    again = shell("migrate", "--sql").stdout
    assert "CREATE" not in again
    psql(empty_database, again)
    shell.close()


def test_the_sql_without_a_database() -> None:
    shell = Shell("postgresql://nobody@127.0.0.1:1/none")
    assert "CREATE TABLE core.processed_jobs" in shell("migrate", "--sql", "--from", "base").stdout
    assert "CREATE TABLE" not in shell("migrate", "--sql", "--from", KNOWN[-1], "--lock-timeout", "0.5").stdout
    assert "no way from 9999" in shell("migrate", "--sql", "--from", "9999", code=1).stderr
    assert "PostgreSQL cannot be used" in shell("migrate", "--sql", code=1).stderr
    assert "--from goes with --sql" in shell("migrate", "--from", "base", code=2).stderr
    assert "exclude each other" in shell("migrate", "--sql", "--check", code=2).stderr
    shell.close()


def test_check_says_where_it_stands(empty_database: str) -> None:
    shell = Shell(empty_database)
    assert shell.json("migrate", "--check", code=1) == {
        "schema": "core", "current": None, "newest": KNOWN[-1], "oldest": revisions.OLDEST, "status": "missing",
    }  # fmt: skip
    assert shell.json("migrate") == {"schema": "core", "before": None, "after": KNOWN[-1]}
    assert shell.json("migrate", "--check")["status"] == "up_to_date"
    shell.close()


def test_the_oldest_revision_is_known() -> None:
    assert revisions.OLDEST in KNOWN
    assert [revisions.stand(revision) for revision in (None, KNOWN[-1], "9999")] == [
        revisions.Stand.MISSING, revisions.Stand.UP_TO_DATE, revisions.Stand.AHEAD,
    ]  # fmt: skip


@pytest.fixture
def role(empty_database: str) -> Iterator[str]:
    """A login role with a name that needs quotes; it owns nothing."""
    name = f"Worker-{empty_database.rpartition('_')[2]}"
    run_sql(empty_database, f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'poor'")
    yield name
    run_sql(empty_database, f'DROP OWNED BY "{name}"')
    run_sql(empty_database, f'DROP ROLE "{name}"')


def as_role(url: str, role: str) -> str:
    made = make_url(url).set(username=role, password="poor")
    return made.render_as_string(hide_password=False)


@pytest.mark.parametrize("schema", ["jobs"])
def test_a_role_with_the_grants_alone_runs_everything(
    empty_database: str, redis_url: str, tmp_path: Path, role: str, schema: str
) -> None:
    shell = Shell(empty_database, schema=schema)
    shell("migrate")
    psql(empty_database, shell("migrate", "--grants", role).stdout)
    shell.close()
    url = as_role(empty_database, role)
    scene = Scene(this(), url, redis_url, tmp_path, admin=empty_database, schema=schema)
    scene.prepare()
    run_sql(empty_database, f'GRANT SELECT, INSERT ON ledger, switch TO "{role}"')
    play(scene)
    for forbidden in (
        f"UPDATE {schema}.audit_log SET actor = 'mallory'",
        f"DELETE FROM {schema}.audit_log",
        f"TRUNCATE {schema}.processed_jobs",
        f"UPDATE {schema}.harness_version SET version_num = '0'",
        f"CREATE TABLE {schema}.mine (id int)",
        f"ALTER TABLE {schema}.inbox ADD COLUMN mine int",
    ):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match=r"permission denied|must be owner"):
            run_sql(url, forbidden)
    poor = Shell(url, schema=schema)
    poor("migrate", "--check")
    poor.close()


def test_every_grant_is_needed_and_none_is_forgotten(place: Place) -> None:
    """Each table of the schema has its GRANT; the audit log is not to be changed."""
    said = grants("core", "worker")
    tables = {name for (name,) in place.run("SELECT tablename FROM pg_tables WHERE schemaname = 'core'")}
    assert {match[1] for match in re.finditer(r" ON core\.(\w+) TO", "\n".join(said))} == tables
    assert [line for line in said if "UPDATE" in line and "audit" in line] == []


@pytest.fixture
def place(database: str) -> Iterator[Place]:
    made = Place(database)
    yield made
    made.database.dispose()
