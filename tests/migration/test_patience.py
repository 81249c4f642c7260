"""A migration behind a long transaction: it does not hold up the workers, tries again, and says who is in its way."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy.exc import DBAPIError

from harness.store import migrate, revisions
from harness.store.patience import MigrationBlocked, Patience
from tests.cli.conftest import Shell
from tests.letters import Place
from tests.migration.releases import with_migration
from tests.migration.test_locks import Workers
from tests.services import run_sql

QUICK = Patience(lock_timeout=0.5, tries=3, pause=0.2, longest_pause=0.4)


@pytest.fixture
def place(database: str) -> Iterator[Place]:
    made = Place(database)
    yield made
    made.database.dispose()


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def add(statements: str) -> None:
        folder = with_migration(tmp_path, statements).tree / "alembic"
        for module in (migrate, revisions):
            monkeypatch.setattr(module, "scripts", lambda: folder)

    return add


@contextmanager
def report(url: str, statement: str = "SELECT count(*) FROM core.processed_jobs") -> Iterator[int]:
    """A session that has forgotten its transaction; its pid."""
    with closing(psycopg2.connect(url, application_name="quarterly report")) as connection:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        yield connection.get_backend_pid()


NOVELTY = "ALTER TABLE {schema}.processed_jobs ADD COLUMN novelty integer"


def test_it_gives_up_and_says_who_is_in_its_way(place: Place, next_release: Callable[[str], None]) -> None:
    next_release(NOVELTY)
    workers = Workers(place)
    with report(place.url) as pid, workers.at_work():
        with pytest.raises(MigrationBlocked, match="in each of 3 tries") as raised:
            migrate.upgrade(place.url, patience=QUICK)
        assert [blocker.pid for blocker in raised.value.blockers] == [pid]
        said = str(raised.value)
        assert (
            f"pid {pid}, application 'quarterly report', user harness, idle in transaction, transaction since" in said
        )
        assert f"SELECT pg_terminate_backend({pid})" in said
    assert 0 < workers.longest < 1.5  # half a second behind the migration, then it makes room
    assert migrate.current(place.url) != "9001"
    assert place.run("SELECT 1 FROM information_schema.columns WHERE column_name = 'novelty'") == []


def test_it_tries_again_until_the_way_is_free(place: Place, next_release: Callable[[str], None]) -> None:
    next_release(NOVELTY)
    with report(place.url) as pid:
        ender = threading.Timer(1.0, run_sql, (place.url, f"SELECT pg_terminate_backend({pid})"))
        ender.start()
        migrate.upgrade(place.url, patience=Patience(lock_timeout=0.3, tries=50, pause=0.1, longest_pause=0.2))
        ender.join()
    assert migrate.current(place.url) == "9001"


def test_a_migration_in_two_locks_takes_none_of_them_home(place: Place, next_release: Callable[[str], None]) -> None:
    """What was done before the lock that was not to be had is rolled back in each try."""
    next_release("ALTER TABLE {schema}.inbox ADD COLUMN novelty text; " + NOVELTY)
    with report(place.url), pytest.raises(MigrationBlocked):
        migrate.upgrade(place.url, patience=QUICK)
    assert place.run("SELECT 1 FROM information_schema.columns WHERE column_name = 'novelty'") == []
    migrate.upgrade(place.url, patience=QUICK)
    assert len(place.run("SELECT 1 FROM information_schema.columns WHERE column_name = 'novelty'")) == 2


def test_another_error_is_not_tried_again(place: Place, next_release: Callable[[str], None]) -> None:
    next_release("SELECT 1/0")
    began = time.monotonic()
    with pytest.raises(DBAPIError, match="division by zero"):
        migrate.upgrade(place.url, patience=Patience(pause=100, longest_pause=100))
    assert time.monotonic() - began < 60


def test_a_deploy_waits_for_another_ones_migration(place: Place, next_release: Callable[[str], None]) -> None:
    next_release(NOVELTY)
    turn = Patience(lock_timeout=0.1, tries=1, turn=30)
    with report(place.url, "SELECT pg_advisory_xact_lock(7061995114)") as pid:
        ender = threading.Timer(1.0, run_sql, (place.url, f"SELECT pg_terminate_backend({pid})"))
        ender.start()
        migrate.upgrade(place.url, patience=turn)
        ender.join()
    assert migrate.current(place.url) == "9001"


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_it_sees_what_the_other_deploy_has_migrated(
    place: Place, next_release: Callable[[str], None], isolation: str
) -> None:
    """Whatever isolation level the database has by default. The second one has nothing to do."""
    name = place.one("SELECT current_database()")
    run_sql(place.url, f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
    next_release(NOVELTY + "; SELECT pg_sleep(0.5)")
    errors: list[BaseException] = []

    def deploy() -> None:
        try:
            migrate.upgrade(place.url, patience=QUICK)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=deploy) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert migrate.current(place.url) == "9001"


def test_the_command_ends_with_5(place: Place, next_release: Callable[[str], None]) -> None:
    before = migrate.current(place.url)
    next_release(NOVELTY)
    shell = Shell(place.url)
    with report(place.url) as pid:
        refused = shell("migrate", "--lock-timeout", "0.3", "--tries", "1", code=5)
    assert f"pid {pid}, application 'quarterly report'" in refused.stderr
    assert re.search(rf"It is at {before} now\.", refused.stderr)
    assert "→ 9001" in shell("migrate").stdout
    shell.close()


def test_a_role_that_may_not_see_others_is_told_the_pid(place: Place, next_release: Callable[[str], None]) -> None:
    next_release(NOVELTY)
    role = "owner_" + place.one("SELECT current_database()")
    run_sql(place.url, f"CREATE ROLE {role} LOGIN PASSWORD 'poor'")
    for table in place.run("SELECT tablename FROM pg_tables WHERE schemaname = 'core'"):
        run_sql(place.url, f"ALTER TABLE core.{table[0]} OWNER TO {role}")
    run_sql(place.url, f"GRANT ALL ON SCHEMA core TO {role}")
    poor = place.database.url.set(username=role, password="poor").render_as_string(hide_password=False)
    try:
        with (
            report(place.url) as pid,
            pytest.raises(MigrationBlocked, match=rf"pid {pid}, .*shown to roles with pg_read"),
        ):
            migrate.upgrade(poor, patience=QUICK)
    finally:
        run_sql(place.url, f"DROP OWNED BY {role} CASCADE")
        run_sql(place.url, f"DROP ROLE {role}")
