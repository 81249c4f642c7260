"""What an attack on the promises found: late copies by side doors, another database's outage, one bad row."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from harness.core.events import Events
from harness.core.message import Message
from harness.core.outcome import Completed, Dead, Deferred, Outcome
from harness.core.reason import Reason
from harness.core.signature import Signature
from harness.process import Copy, JobSpec, Limits, deliver
from harness.relay import Relay
from harness.store import Database, Store
from harness.store.inbox import Arrival, InboxRow
from tests.publishing import in_turn

LIMITS = Limits(fence_wait=0.5, outage_hold=3.0)
ARRIVAL = Arrival("s", "s/t", "t", "j1", Message(b"[[],{},{}]", "application/json", "utf-8", {}, {}, "q"))
SPEC = JobSpec("s", "t", "s/t", Signature.of(lambda: None, {}))
OLD = datetime.now(UTC) - timedelta(days=9)
Run = Callable[..., Outcome]


@pytest.fixture
def db(database: str) -> Iterator[Database]:
    made = Database(database, pool_size=2)
    yield made
    made.dispose()


@pytest.fixture
def store() -> Store:
    return Store.of("core")


@pytest.fixture
def run(db: Database, store: Store) -> Run:
    def run(copy: Copy, call: Any = lambda *_: None) -> Outcome:
        return deliver(db, store, copy, SPEC, [], {}, call, LIMITS)

    return run


@pytest.mark.parametrize("late", [{}, {"redelivered": True}, {"generation": 3, "dispatches": 2}])
def test_a_copy_older_than_its_fence_may_be_does_not_run(run: Run, late: dict[str, Any]) -> None:
    outcome = run(replace(Copy(ARRIVAL, sent_at=OLD), **late))
    assert isinstance(outcome, Dead)
    assert outcome.reason is Reason.too_old


def test_a_young_redelivered_copy_runs(run: Run) -> None:
    assert isinstance(run(Copy(ARRIVAL, sent_at=datetime.now(UTC), redelivered=True)), Completed)


def test_another_databases_outage_is_a_failed_try(run: Run) -> None:
    elsewhere = create_engine("postgresql+psycopg2://nobody@127.0.0.1:1/gone")

    def call(*_: Any) -> None:
        with elsewhere.connect():
            pass

    outcome = run(Copy(ARRIVAL), call)
    assert isinstance(outcome, Deferred)
    assert outcome.spends_try
    assert outcome.failure.error_type.endswith("OperationalError")


def raising(code: str) -> Any:
    def call(args: Any, kwargs: Any, session: Session, job: Any) -> None:
        session.execute(text(f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$"))

    return call


@pytest.mark.parametrize("code", ["53100", "25006", "58030"])
def test_a_database_that_can_not_write_spends_neither_try_nor_delivery(
    code: str, run: Run, db: Database, store: Store
) -> None:
    copy = Copy(ARRIVAL)
    for _ in range(2 * LIMITS.max_deliveries):
        outcome = run(copy, raising(code))
        assert isinstance(outcome, Deferred)
        assert not outcome.spends_try
        assert outcome.delay > 0
        with db.begin() as session:
            row = store.inbox.find(session, copy.key)
        assert row is not None
        assert (row.attempts, row.deliveries) == (0, 0)
        assert row.failures[-1]["message"].startswith("(psycopg2.errors")
        copy = Copy(ARRIVAL, generation=row.generation, dispatches=1)
    assert isinstance(run(copy), Completed)


@pytest.mark.parametrize("code", ["53200", "53400"])
def test_a_job_that_takes_too_much_of_the_server_has_failed(code: str, run: Run) -> None:
    outcome = run(Copy(ARRIVAL), raising(code))
    assert isinstance(outcome, Deferred)
    assert outcome.spends_try


def test_a_handler_that_ends_the_transaction_leaves_no_half_done_work(db: Database, run: Run) -> None:
    def call(args: Any, kwargs: Any, session: Session, job: Any) -> None:
        session.execute(text("CREATE TABLE half (n int)"))
        session.connection().commit()

    outcome = run(Copy(ARRIVAL), call)
    assert isinstance(outcome, Dead)
    with db.begin() as session:
        assert session.scalar(text("SELECT to_regclass('half')")) is None
        assert session.scalar(text("SELECT state FROM core.processed_jobs")) == "dead"


def test_one_row_that_cannot_be_sent_does_not_hold_up_the_others(db: Database, store: Store) -> None:
    sent: list[str] = []

    def publish(row: InboxRow) -> None:
        if row.job_id == "bad":
            raise ValueError("refused")
        sent.append(row.job_id)

    with db.begin() as session:
        for job_id in ("bad", "good1", "good2"):
            store.inbox.add(session, replace(ARRIVAL, job_id=job_id))
    relay = Relay(db, store, "s", in_turn(publish), Events())
    for _ in range(2):  # all at once, then row by row: now it is known which one it is
        with pytest.raises(ValueError, match="refused"):
            relay.step()
        assert sent == []
    assert relay.step() == 2
    assert sent == ["good1", "good2"]
    with db.begin() as session:
        row = store.inbox.find(session, replace(Copy(ARRIVAL), arrival=replace(ARRIVAL, job_id="bad")).key)
        assert row is not None
        assert session.scalar(text("SELECT relay_error FROM core.inbox")) == "ValueError: refused"
