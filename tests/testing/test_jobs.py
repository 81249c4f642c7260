"""Jobs in the test's own transaction: the same pipe as in a worker, and nothing of it stays."""

import math
from typing import Any

import pytest
from celery import Celery, group
from kombu.exceptions import EncodeError
from psycopg2 import sql
from psycopg2.extras import execute_values
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from harness import Harness
from harness.core.errors import Unrecorded, UsageError
from harness.store.database import with_driver
from harness.testing import Completed, Dead, Deferred, Duplicate, Jobs, Reason, Stale, jobs, steady_jitter
from harness.testing.sent import dispatched, sent_of
from tests.testing.bank import jobs_of, notes


@pytest.fixture
def bank(harness: Harness) -> Any:
    return jobs_of(harness)


def counts(session: Session) -> list[int]:
    tables = ("ledger", "core.processed_jobs", "core.inbox", "core.dead_letters", "core.audit_log")
    return [session.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() for table in tables]


def test_nothing_is_committed(harness_jobs: Jobs, bank: Any, harness_session: Session, elsewhere: Session) -> None:
    assert harness_jobs.run(bank.credit, job_id="one", points=7) == Completed(7)
    assert isinstance(harness_jobs.run(bank.fails, job_id="two"), Deferred)
    assert isinstance(harness_jobs.run(bank.credit, job_id="three", points=-1), Dead)
    assert notes(harness_session) == [("one", "7")]
    assert counts(harness_session) == [1, 3, 1, 1, 1]
    assert counts(elsewhere) == [0, 0, 0, 0, 0]


def test_each_outcome_of_one_job(harness_jobs: Jobs, bank: Any) -> None:
    """A second copy from the broker is stale while the job waits or is dead, and a duplicate when it is done."""
    assert isinstance(harness_jobs.run(bank.fails, job_id="a", good=2), Deferred)
    assert harness_jobs.run(bank.fails, job_id="a", good=2) == Stale()
    assert [ran.outcome for ran in harness_jobs.drain()] == [Completed(None, 2)]
    assert harness_jobs.run(bank.fails, job_id="a", good=2) == Duplicate()
    harness_jobs.run(bank.credit, job_id="b", points="x")
    assert harness_jobs.run(bank.credit, job_id="b", points="x") == Stale(dead=True)
    other = harness_jobs.run(bank.credit, job_id="b", points=1)
    assert isinstance(other, Dead)
    assert (other.reason, other.job_id.partition("#")[0]) == (Reason.conflict, "b")


def test_the_work_of_the_test_survives_a_failed_try(harness_jobs: Jobs, bank: Any, harness_session: Session) -> None:
    harness_session.execute(text("INSERT INTO ledger (job_id, note) VALUES ('mine', 'before')"))
    harness_jobs.run(bank.runs, statement="INSERT INTO nowhere VALUES (1)")
    harness_jobs.assert_deferred(bank.runs, error="UndefinedTable")
    harness_session.commit()
    assert notes(harness_session) == [("mine", "before")]


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("commits", {}, "may not commit"),
        ("swallows", {}, "given up the whole transaction"),
        ("goes_on", {}, "What it swallowed: DivisionByZero"),
        ("runs", {"statement": "COMMIT"}, "may not send 'COMMIT'"),
        ("runs", {"statement": "ROLLBACK"}, "may not send 'ROLLBACK'"),
        ("runs", {"statement": "SELECT 1; COMMIT"}, "may not send"),
    ],
)
def test_the_transaction_is_guarded_as_in_a_worker(
    harness_jobs: Jobs, bank: Any, harness_session: Session, name: str, arguments: dict[str, str], says: str
) -> None:
    harness_session.execute(text("INSERT INTO ledger (job_id, note) VALUES ('mine', 'before')"))
    harness_jobs.run(getattr(bank, name), **arguments)
    harness_jobs.assert_dead(name, reason=Reason.permanent, error=says)
    assert len(notes(harness_session)) == 1


def test_a_constraint_that_waits_for_the_commit(harness_jobs: Jobs, bank: Any, harness_session: Session) -> None:
    harness_jobs.run(bank.runs, statement="INSERT INTO children VALUES (5)")
    harness_jobs.assert_deferred(bank.runs, error="ForeignKeyViolation")
    harness_session.execute(text("INSERT INTO parents VALUES (5)"))
    [ran] = harness_jobs.drain()
    assert ran.outcome == Completed(None, 2)
    harness_session.execute(text("INSERT INTO children VALUES (6)"))  # still put off for the test itself


def test_the_request_is_that_of_a_worker(harness_jobs: Jobs, bank: Any) -> None:
    assert isinstance(harness_jobs.run(bank.bound.s().set(queue="special"), job_id="b"), Deferred)
    harness_jobs.assert_deferred(bank.bound, delay=3)
    [ran] = harness_jobs.drain()
    assert ran.outcome == Completed([True, 1, "special"], 2)


def test_what_cannot_be_sent_does_not_run(harness_jobs: Jobs, bank: Any) -> None:
    with pytest.raises(EncodeError):
        harness_jobs.run(bank.credit, points=object())
    with pytest.raises(UsageError, match="no job"):
        harness_jobs.run(bank.plain, 1)
    assert harness_jobs.rows() == []


def test_always_eager_is_told(harness_jobs: Jobs, bank: Any, app: Celery) -> None:
    app.conf.task_always_eager = True
    with pytest.raises(UsageError, match="task_always_eager"):
        harness_jobs.run(bank.credit, points=1)


def test_time(harness_jobs: Jobs, bank: Any, harness_session: Session) -> None:
    with steady_jitter(0):
        harness_jobs.run(bank.credit.s().set(countdown=100), job_id="eta")
        harness_jobs.run(bank.fails, job_id="fails")
        harness_jobs.run(bank.later, job_id="later")
        harness_jobs.assert_deferred(job_id="eta", delay=(99, 115), attempts=0)
        harness_jobs.assert_deferred(job_id="fails", delay=10, attempts=1, error=ValueError)
        assert [ran.job_id for ran in harness_jobs.advance(6.9)] == []
        assert [ran.job_id for ran in harness_jobs.advance(0.1)] == ["later"]
        assert [ran.job_id for ran in harness_jobs.advance(80)] == ["fails"]
        harness_jobs.assert_deferred(job_id="eta", delay=(12, 28))
        assert [ran.job_id for ran in harness_jobs.drain()] == ["eta"]
    letter = harness_jobs.assert_dead(job_id="fails", reason="exhausted", attempts=2)
    assert letter.deliveries == 1
    assert notes(harness_session) == [("eta", "1")]


def test_not_ready_waits_up_to_its_deadline(harness_jobs: Jobs, bank: Any) -> None:
    harness_jobs.run(bank.not_ready, job_id="n")
    assert len(harness_jobs.advance(250)) > 2
    harness_jobs.assert_deferred(bank.not_ready, attempts=0)
    harness_jobs.drain()
    harness_jobs.assert_dead(bank.not_ready, reason="not_ready")


def test_expiry(harness_jobs: Jobs, bank: Any) -> None:
    harness_jobs.run(bank.credit.s().set(expires=-1), job_id="late")
    harness_jobs.assert_dead(bank.credit, reason="expired")


@pytest.mark.filterwarnings("ignore:.* is sent from inside of a handler")
def test_what_jobs_send_is_caught_and_drained(harness_jobs: Jobs, bank: Any, harness_session: Session) -> None:
    bank.sends.delay(levels=2)
    harness_jobs.assert_enqueued(bank.sends, kwargs={"levels": 2}, queue="bank", times=1)
    assert [ran.outcome for ran in harness_jobs.drain()] == [Completed()] * 3
    assert [note for _, note in notes(harness_session)] == ["2", "1", "0"]
    harness_jobs.assert_enqueued("sends", job_id="level-0", times=1)
    harness_jobs.assert_enqueued(bank.plain, args=[1], times=1)
    assert harness_jobs.drain() == [], "a message runs once"


def test_groups_and_names_are_caught(harness_jobs: Jobs, bank: Any, app: Celery) -> None:
    group([bank.plain.s(1), bank.plain.s(2)]).apply_async()
    app.send_task("of.another.service", kwargs={"a": 1}, queue="theirs", countdown=5)
    harness_jobs.assert_enqueued(bank.plain, times=2)
    assert harness_jobs.assert_enqueued("of.another.service", queue="theirs").headers["eta"]
    assert harness_jobs.drain() == []


def test_rows_of_the_inbox_count_as_sent(
    harness_jobs: Jobs, bank: Any, harness: Harness, harness_session: Session
) -> None:
    """What a transactional enqueue writes: a row of generation 0. One that is rolled back was not sent."""
    bank.credit.apply_async(kwargs={"points": 3}, task_id="row")
    arrival = _arrival(harness_jobs.sent[0], harness, bank.credit)

    def enqueue(job_id: str) -> None:
        harness.store.inbox.add(harness_session, arrival(job_id), delay=50)

    with harness_session.begin_nested() as savepoint:
        enqueue("undone")
        savepoint.rollback()
    harness_jobs.assert_enqueued(bank.credit, times=1)
    enqueue("kept")
    sent = harness_jobs.assert_enqueued(bank.credit, kwargs={"points": 3}, job_id="kept")
    assert sent.via == "inbox"
    assert harness_jobs.rows()[0].enqueued
    assert [ran.job_id for ran in harness_jobs.advance(49)] == ["row"]
    assert [ran.job_id for ran in harness_jobs.drain()] == ["kept"]
    harness_jobs.assert_enqueued(bank.credit, times=2)
    assert notes(harness_session) == [("row", "3"), ("kept", "3")]


def _arrival(sent: Any, harness: Harness, job: Any) -> Any:
    from dataclasses import replace

    from harness.worker.wire import copy_of

    arrival = copy_of(sent.wire, harness.settings.service, job.spec.consumer).arrival

    def of(job_id: str) -> Any:
        message = replace(arrival.message, headers=arrival.message.headers | {"id": job_id})
        return replace(arrival, job_id=job_id, message=message)

    return of


def test_rows_of_others_are_left_alone(harness_jobs: Jobs, bank: Any, harness: Harness, elsewhere: Session) -> None:
    bank.credit.apply_async(kwargs={"points": 3}, task_id="mine")
    arrival = _arrival(harness_jobs.sent[0], harness, bank.credit)
    harness.store.inbox.add(elsewhere, arrival("theirs"))
    assert [ran.job_id for ran in harness_jobs.drain()] == ["mine"]
    harness_jobs.assert_enqueued(bank.credit, times=1)
    assert counts(elsewhere)[2] == 1


def test_gate_and_replay(harness_jobs: Jobs, bank: Any, harness_session: Session) -> None:
    harness_jobs.run(bank.needs_parent, job_id="n", id=5)
    assert harness_jobs.can_replay(bank.needs_parent) is False
    harness_session.execute(text("INSERT INTO parents VALUES (5)"))
    assert harness_jobs.can_replay(bank.needs_parent) is True
    assert [ran.outcome for ran in harness_jobs.replay(bank.needs_parent)] == [Completed()]
    harness_jobs.assert_done(bank.needs_parent)
    with pytest.raises(AssertionError, match="no dead letter"):
        harness_jobs.assert_dead(bank.needs_parent)
    harness_jobs.run(bank.credit, points=0)
    with pytest.raises(UsageError, match="no gate"):
        harness_jobs.can_replay(bank.credit)


def test_a_real_commit_is_told(harness: Harness, bank: Any, harness_database_url: str) -> None:
    engine = create_engine(with_driver(harness_database_url), poolclass=NullPool)
    with Session(engine) as session, Jobs(harness, session) as jobs:
        jobs.run(bank.credit, points=1)
        session.commit()
        with pytest.raises(UsageError, match="a real one"):
            jobs.run(bank.credit, points=1)


def test_a_bare_connection_and_a_stricter_level(harness: Harness, bank: Any, harness_database_url: str) -> None:
    engine = create_engine(with_driver(harness_database_url), poolclass=NullPool, isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        with connection.begin() as transaction, Jobs(harness, connection) as jobs:
            assert jobs.run(bank.credit, points=2) == Completed(2)
            assert isinstance(jobs.run(bank.fails), Deferred)
            jobs.drain()
            jobs.assert_dead(bank.fails)
            transaction.rollback()
        with Session(connection) as session:
            assert counts(session) == [0, 0, 0, 0, 0]


def test_what_cannot_be_borrowed(harness: Harness, harness_database_url: str) -> None:
    with create_engine("sqlite://").connect() as connection, pytest.raises(UsageError, match=r"sqlite3.*psycopg2"):
        Jobs(harness, connection)
    engine = create_engine(with_driver(harness_database_url), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(UsageError, match="AUTOCOMMIT"):
        Jobs(harness, connection)


def test_everything_is_as_before(harness: Harness, bank: Any, harness_session: Session, app: Celery) -> None:
    database, producers = harness.database, app.producer_or_acquire
    before = harness_session.execute(text("SHOW lock_timeout")).scalar()
    with Jobs(harness, harness_session) as jobs:
        assert harness.database is not database
        jobs.run(bank.credit, points=1)
        jobs.run(bank.credit, points=-1)
    assert harness.database is database
    assert app.producer_or_acquire == producers
    assert type(app.backend).__name__ == "RedisBackend"
    assert harness_session.execute(text("SHOW lock_timeout")).scalar() == before


def test_a_connection_that_breaks_is_told_at_once(harness: Harness, bank: Any, harness_database_url: str) -> None:
    engine = create_engine(with_driver(harness_database_url), poolclass=NullPool)
    session = Session(engine)
    with Jobs(harness, session) as jobs:
        with pytest.raises(Unrecorded, match=r"has been away for 0\.1 s"):
            jobs.run(bank.runs, statement="SELECT pg_terminate_backend(pg_backend_pid())")
        with pytest.raises(UsageError, match="the connection is gone"):
            jobs.rows()
    session.invalidate()


def test_drivers_own_ways_are_the_same_transaction(harness_jobs: Jobs, harness: Harness, elsewhere: Session) -> None:
    """psycopg2 itself, many rows at once, and the harness's own connection are all in the test's transaction."""

    @harness.job(name="many", shared=False)
    def many(session: Session) -> int:
        connection = session.connection()
        with connection.connection.cursor() as cursor:
            execute_values(cursor, "INSERT INTO ledger (job_id, note) VALUES %s", [(str(n), "") for n in range(3)])
            cursor.execute(sql.SQL("INSERT INTO {} (job_id) VALUES (%s)").format(sql.Identifier("ledger")), ["3"])
        connection.execute(text("INSERT INTO ledger (job_id) VALUES (:id)"), [{"id": "4"}, {"id": "5"}])
        with harness.database.begin() as own:
            own.execute(text("INSERT INTO ledger (job_id) VALUES ('6')"))
        with session.begin_nested() as savepoint:
            session.execute(text("INSERT INTO ledger (job_id) VALUES ('undone')"))
            savepoint.rollback()
        return len(notes(session))

    assert harness_jobs.run(many) == Completed(7)
    assert counts(elsewhere) == [0, 0, 0, 0, 0]


@pytest.mark.filterwarnings("ignore:.* is sent from inside of a handler")
def test_without_end(harness_jobs: Jobs, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST_RUNS", 20)

    @harness.job(name="again", shared=False)
    def again(session: Session) -> None:
        again.delay()

    harness_jobs.run(again)
    with pytest.raises(AssertionError, match="no end after 20 runs"):
        harness_jobs.advance(math.inf)


def test_a_relays_copy(harness_jobs: Jobs, bank: Any, harness: Harness, app: Celery) -> None:
    """The copy that runs is the one that the relay would send: marks, tries and all."""
    harness_jobs.run(bank.fails, job_id="r")
    row = harness_jobs.assert_deferred(bank.fails)
    sent = sent_of(app, dispatched(app, row), "inbox")
    assert sent.headers["retries"] == 1
    assert sent.wire.marks["harness_generation"] == str(row.generation)
