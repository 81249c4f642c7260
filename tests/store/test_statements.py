"""What a statement is taken for: without a server, and then what a handler's statements leave for the next job."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import text
from sqlalchemy.orm import Session

from harness import Harness
from harness.core.message import Message
from harness.core.outcome import Completed
from harness.process.copy import Copy, Job
from harness.process.spec import Limits
from harness.process.work import Failed, work
from harness.store.inbox import Arrival
from harness.store.statements import Does, does


@pytest.mark.parametrize(
    "sql",
    [
        "SET search_path = other",
        "set session statement_timeout to 0",
        "/* why */ SET ROLE somebody",
        "SET SESSION AUTHORIZATION x",
        "SET TIME ZONE 'UTC'",
        "SELECT 1; SET x.y = 'z'",
        "RESET ALL",
        "LISTEN jobs",
        "LOAD 'auto_explain'",
        "PREPARE p AS SELECT 1",
        "CREATE TEMP TABLE t (x int)",
        "create temporary view v as select 1",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_try_advisory_lock_shared(1)",
        "SELECT set_config('a.b', 'c', false)",
        "SELECT set_config('a.b', %(value)s, %(local)s)",
        "SELECT set_config('a.b', 'c', true), set_config('a.b', 'c', false)",
    ],
)
def test_what_stays_in_the_session(sql: str) -> None:
    assert does(sql) is Does.leaves


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SET LOCAL search_path = other",
        "SET CONSTRAINTS ALL DEFERRED",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "UPDATE t SET x = 1",
        "INSERT INTO t VALUES ('SET x = 1')",
        "SELECT set_config('a.b', %(value)s, true)",
        "SELECT pg_advisory_xact_lock(1)",
        "CREATE TABLE temperature (x int)",
        "SAVEPOINT s",
        "ROLLBACK TO s",
        "DECLARE c CURSOR FOR SELECT 1",
        "SETTLE",
    ],
)
def test_what_ends_with_the_transaction(sql: str) -> None:
    assert does(sql) is Does.neither


@pytest.mark.parametrize("sql", ["COMMIT", "SET x.y = 1; COMMIT", "PREPARE TRANSACTION 'x'", "SELECT 1; ROLLBACK"])
def test_what_ends_the_transaction(sql: str) -> None:
    assert does(sql) is Does.ends


@pytest.fixture
def harness(database: str) -> Iterator[Harness]:
    made = Harness(Celery("leaves", broker="memory://", set_as_current=False), service="tests", database_url=database)
    yield made
    made.close()


def run(harness: Harness, job_id: str, sql: str, *, fails: bool = False) -> list[Any]:
    """One job on the process's only connection; what its statement before and its own backend are."""
    seen: list[Any] = []

    def handler(session: Session, job: Job) -> None:
        seen.append(session.execute(text("SELECT pg_backend_pid(), current_setting('statement_timeout')")).one())
        session.execute(text(sql))
        if fails:
            raise ValueError("no")

    message = Message(b"", None, None, {}, {}, "q")
    copy = Copy(Arrival("tests", "tests/t", "t", job_id, message))
    if fails:
        with pytest.raises(Failed):
            work(harness.database, harness.store, copy, handler, Limits())
    else:
        assert isinstance(work(harness.database, harness.store, copy, handler, Limits()), Completed)
    return seen


@pytest.mark.parametrize("fails", [False, True])
def test_the_next_job_has_a_session_of_its_own(harness: Harness, fails: bool) -> None:
    [(first, usual)] = run(harness, "plain", "SELECT 1")
    [(second, _)] = run(harness, "local", "SET LOCAL statement_timeout = 77", fails=fails)
    assert second == first, "what is local costs nothing"
    run(harness, "leaves", "SET statement_timeout = 77", fails=fails)
    [(third, after)] = run(harness, "next", "SELECT 1")
    assert after == usual
    assert third != first
    run(harness, "locks", "SELECT pg_advisory_lock(4711)", fails=fails)
    [(other, _)] = run(harness, "last", "SELECT 1")
    assert other != third
    with harness.database.begin() as session:
        assert session.execute(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")).scalar() == 0
