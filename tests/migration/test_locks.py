"""Which locks a migration takes: stated in its docstring and in the docs, and no others; workers go on meanwhile."""

from __future__ import annotations

import importlib.util
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from alembic import command
from harness.store import migrate, revisions
from harness.store.patience import Patience
from harness.store.processed_jobs import FenceState, Key
from tests.letters import SERVICE, Place, arrival
from tests.migration.releases import with_migration
from tests.worker.running import ROOT, until

#: Locks behind which a worker's INSERT, UPDATE or DELETE waits.
STRONG = ("SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE")
_STATED = re.compile(r"(\w+) ((?:ACCESS EXCLUSIVE|SHARE ROW EXCLUSIVE|EXCLUSIVE|SHARE)(?! UPDATE))")
KNOWN = revisions.revisions()
UPGRADES = (ROOT / "docs" / "howto" / "upgrades.md").read_text()
#: Seconds that no statement of a worker may wait for a migration: as long as a migration waits for a lock.
LONGEST = Patience().lock_timeout


def docstring(revision: str, scripts: Path) -> str:
    folder = ScriptDirectory(str(scripts))
    path = Path(folder.get_revision(revision).path)
    spec = importlib.util.spec_from_file_location("migration", path)
    assert spec is not None
    return spec.loader.get_source("migration").split('"""')[1]  # type: ignore[union-attr]


def stated(revision: str, scripts: Path) -> set[tuple[str, str]]:
    """The locks that the migration's docstring names. AssertionError where it says nothing of them."""
    said = re.search(r"^Locks: (.+?)(?:\n\n|\Z)", docstring(revision, scripts), re.DOTALL | re.MULTILINE)
    assert said, f'{revision}: no paragraph "Locks: …" in its docstring'
    found = {(match[1], match[2]) for match in _STATED.finditer(" ".join(said[1].split()))}
    assert found or said[1].startswith("none"), f"{revision}: neither a lock nor none: {said[1]}"
    return found


def fill(place: Place) -> None:
    """Many fences, jobs that wait, letters."""
    place.run(
        "INSERT INTO core.processed_jobs (job_id, consumer, state)"
        " SELECT 'old-' || n, 'billing/pay', 'done' FROM generate_series(1, 50000) n"
    )
    for number in range(20):
        place.wait(f"waits-{number}")
        place.dead(f"dead-{number}")
    for table in ("inbox", "dead_letters"):
        names = "SELECT string_agg(column_name, ', ') FROM information_schema.columns WHERE table_schema = 'core'"
        columns = place.one(f"{names} AND table_name = '{table}' AND column_name NOT IN ('id', 'job_id')")
        place.run(
            f"INSERT INTO core.{table} (job_id, {columns}) SELECT 'many-' || n, {columns}"
            f" FROM (SELECT * FROM core.{table} ORDER BY id LIMIT 1) one, generate_series(1, 5000) n"
        )


def taken(place: Place, revision: str) -> set[tuple[str, str]]:
    """The strong locks that the migration to `revision` holds at its end, on tables that were there before it."""
    before = {name for (name,) in place.run("SELECT tablename FROM pg_tables WHERE schemaname = 'core'")}
    query = text(
        "SELECT c.relname, l.mode FROM pg_locks l JOIN pg_class c ON c.oid = l.relation"
        " WHERE l.pid = pg_backend_pid() AND l.granted AND c.relnamespace = to_regnamespace('core')"
    )
    with place.database.engine.connect() as connection:
        command.upgrade(bound(connection), revision)
        rows = connection.execute(query).all()
        connection.rollback()
    modes = {(name, re.sub(r"(?<=[a-z])(?=[A-Z])", " ", mode.removesuffix("Lock")).upper()) for name, mode in rows}
    return {(name, mode) for name, mode in modes if name in before and mode in STRONG}


def bound(connection: Connection) -> migrate.Config:
    return migrate._bound(migrate._config("core"), connection)


class Workers:
    """Sessions that do what workers and relays do; `longest`: how long one of them has waited for a migration."""

    def __init__(self, place: Place) -> None:
        self.place, self.longest, self.count = place, 0.0, 0
        self.errors: list[BaseException] = []
        self._stop = threading.Event()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        works = (self._job, self._relay, self._defer, self._look)
        threads = [threading.Thread(target=self._loop, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            until(lambda: self.count > 30, 120, "they work")
            yield
            before = self.count
            until(lambda: self.count > before + 30, 120, "they go on")
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        assert self.errors == []

    def _loop(self, work: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                work()
        except BaseException as error:
            self.errors.append(error)

    def _look(self) -> None:
        """By PostgreSQL's own clock: on a busy machine ours says little."""
        waits = """
            SELECT coalesce(max(extract(epoch FROM clock_timestamp() - l.waitstart)), 0) FROM pg_locks l
            JOIN pg_stat_activity a ON a.pid = ANY (pg_blocking_pids(l.pid)) AND a.application_name = 'harness migrate'
            WHERE NOT l.granted
        """
        self.longest = max(self.longest, float(self.place.one(waits)))
        time.sleep(0.02)

    def _job(self) -> None:
        with self.place.database.begin() as session:
            assert self.place.store.fence.take(session, Key(uuid4().hex, "billing/pay"), FenceState.DONE, relayed=False)
        self.count += 1

    def _relay(self) -> None:
        with self.place.database.begin() as session:
            self.place.store.inbox.lease_due(session, SERVICE, limit=1, lease=0.01, longest=0.01)

    def _defer(self) -> None:
        key = Key(uuid4().hex, "billing/pay")
        with self.place.database.begin() as session:
            self.place.store.fence.take(session, key, FenceState.WAITING, relayed=False)
            self.place.store.inbox.add(session, arrival(key.job_id), fresh=True)


@pytest.fixture
def place(empty_database: str) -> Iterator[Place]:
    made = Place(empty_database)
    yield made
    made.database.dispose()


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a migration of these statements behind the last one, for this process."""

    def add(statements: str, locks: str = "none on a table that was there.") -> Path:
        folder = with_migration(tmp_path, statements, locks=locks).tree / "alembic"
        for module in (migrate, revisions):
            monkeypatch.setattr(module, "scripts", lambda: folder)
        return folder

    return add


@pytest.mark.parametrize("revision", KNOWN)
def test_a_migration_takes_the_locks_that_it_states(place: Place, revision: str) -> None:
    before = KNOWN[: KNOWN.index(revision)]
    if before:
        migrate.upgrade(place.url, revision=before[-1])
        fill(place)
    assert taken(place, revision) == stated(revision, revisions.scripts())
    said = re.search(r"^Locks: (.+?)(?:\n\n|\Z)", docstring(revision, revisions.scripts()), re.DOTALL | re.MULTILINE)
    assert said is not None
    row = re.search(rf"^\| `{revision}` .*$", UPGRADES, re.MULTILINE)
    assert row, f"docs/howto/upgrades.md has no row for {revision}"
    assert " ".join(said[1].split()).rstrip(".") in row[0]


def test_workers_go_on_while_migrations_run(place: Place, next_release: Callable[..., Path]) -> None:
    migrate.upgrade(place.url, revision=KNOWN[0])
    fill(place)
    next_release("ALTER TABLE {schema}.processed_jobs ADD COLUMN novelty integer NOT NULL DEFAULT 0")
    workers = Workers(place)
    with workers.at_work():
        migrate.upgrade(place.url)
    assert migrate.current(place.url) == "9001"
    assert workers.longest < LONGEST


@pytest.mark.parametrize(
    ("statements", "lock"),
    [
        ("CREATE INDEX novelty_idx ON {schema}.processed_jobs (processed_at)", ("processed_jobs", "SHARE")),
        ("ALTER TABLE {schema}.inbox ADD COLUMN novelty text", ("inbox", "ACCESS EXCLUSIVE")),
        ("LOCK TABLE {schema}.dead_letters IN EXCLUSIVE MODE", ("dead_letters", "EXCLUSIVE")),
    ],
)
def test_a_lock_that_is_not_stated_is_found(
    place: Place, next_release: Callable[..., Path], statements: str, lock: tuple[str, str]
) -> None:
    migrate.upgrade(place.url)
    folder = next_release(statements)
    assert taken(place, "9001") == {lock}
    assert stated("9001", folder) == set()


def test_a_lock_that_is_stated_is_read(next_release: Callable[..., Path]) -> None:
    folder = next_release("SELECT 1", "inbox ACCESS EXCLUSIVE, for a moment;\naudit_log SHARE ROW EXCLUSIVE.")
    assert stated("9001", folder) == {("inbox", "ACCESS EXCLUSIVE"), ("audit_log", "SHARE ROW EXCLUSIVE")}


def test_a_migration_that_stops_the_workers_is_found(place: Place, next_release: Callable[..., Path]) -> None:
    migrate.upgrade(place.url)
    next_release(f"LOCK TABLE {{schema}}.processed_jobs; SELECT pg_sleep({LONGEST + 0.5})")
    workers = Workers(place)
    with workers.at_work():
        migrate.upgrade(place.url)
    assert workers.longest > LONGEST
