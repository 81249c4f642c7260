"""The flaws that the model found, on the real tables: what a copy does that finds its job at work too long."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.orm import Session

from harness.core.failure import Failure, Kind
from harness.core.message import Message
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.policy import Policy
from harness.core.signature import Signature
from harness.process import Copy, Job, JobSpec, Limits, deliver, record
from harness.store import Database, FenceState, Store
from harness.store.inbox import Arrival, InboxRow
from harness.store.letter import Filter

LIMITS = Limits(fence_wait=0.2, outage_hold=5.0, busy_delay=0.0)
ARRIVAL = Arrival("s", "s/t", "t", "j1", Message(b"[[],{},{}]", "application/json", "utf-8", {}, {}, "q"))
SPEC = JobSpec("s", "t", "s/t", Signature.of(lambda: None, {}))
PLAIN = Copy(ARRIVAL)
Run = Callable[..., Outcome]


@pytest.fixture
def db(database: str) -> Iterator[Database]:
    made = Database(database, pool_size=4)
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


def relay_copy(db: Database, store: Store) -> Copy:
    """What the relay would send now."""
    with db.begin() as session:
        [row] = store.inbox.lease_due(session, "s", limit=10, lease=0.0, longest=0.0)
    return replace(PLAIN, generation=row.generation, dispatches=row.dispatches)


def row_of(db: Database, store: Store) -> InboxRow | None:
    with db.begin() as session:
        return store.inbox.find(session, PLAIN.key)


def while_at_work(run: Run, then: Callable[[], None], fails: bool = False) -> Outcome:
    """Deliver a plain copy; `then` happens while its handler runs."""

    def call(args: Any, kwargs: Any, session: Session, job: Job) -> None:
        then()
        if fails:
            from harness import Permanent

            raise Permanent("no")

    return run(PLAIN, call)


def test_a_waiting_copy_leaves_a_row_and_the_first_one_completes(db: Database, store: Store, run: Run) -> None:
    def second() -> None:
        assert isinstance(run(PLAIN), Deferred)

    assert isinstance(while_at_work(run, second), Completed)
    row = row_of(db, store)
    assert row is not None
    assert row.attempts == 0
    assert isinstance(run(relay_copy(db, store)), Duplicate)
    assert row_of(db, store) is None


def test_a_row_left_beside_a_dead_fence_does_not_stay(db: Database, store: Store, run: Run) -> None:
    def second() -> None:
        assert isinstance(run(PLAIN), Deferred)

    assert isinstance(while_at_work(run, second, fails=True), Dead)
    with db.begin() as session:
        # The late row of a copy that looked before the verdict and wrote after it.
        store.inbox.add(session, ARRIVAL)
    assert isinstance(run(relay_copy(db, store)), Stale)
    assert row_of(db, store) is None


def test_waiting_for_the_fence_is_no_crash(db: Database, store: Store, run: Run) -> None:
    def waiting() -> None:
        assert isinstance(run(PLAIN), Deferred)
        for _ in range(LIMITS.max_deliveries + 2):
            outcome = run(relay_copy(db, store))
            assert isinstance(outcome, Deferred)
            assert not outcome.spends_try

    assert isinstance(while_at_work(run, waiting), Completed)
    assert isinstance(run(relay_copy(db, store)), Duplicate)


def test_a_relay_copy_without_a_row_puts_none_in(db: Database, store: Store, run: Run) -> None:
    def late() -> None:
        assert isinstance(run(replace(PLAIN, generation=7)), Stale)

    assert isinstance(while_at_work(run, late), Completed)
    assert row_of(db, store) is None


def test_false_marks_of_the_relay_do_not_lose_a_job(db: Database, store: Store, run: Run) -> None:
    assert isinstance(run(replace(PLAIN, generation=7, dispatches=1)), Completed)
    other = replace(PLAIN, arrival=replace(ARRIVAL, job_id="j2"), generation=3, dispatches=4)
    failure = Failure(Kind.undecodable, "ValueError", "no")
    assert isinstance(record(db, store, other, failure, Policy(), LIMITS), Dead)


def test_a_replay_takes_the_place_of_a_late_row(db: Database, store: Store, run: Run) -> None:
    def permanent(*_: Any) -> None:
        raise KeyError("x")

    spec = replace(SPEC, permanent=(KeyError,))
    dead = deliver(db, store, PLAIN, spec, [], {}, permanent, LIMITS)
    assert isinstance(dead, Dead)
    with db.begin() as session:
        store.inbox.add(session, ARRIVAL)
        store.fence.set_state(session, PLAIN.key, FenceState.WAITING)
        assert store.inbox.add(session, ARRIVAL, fresh=True, replace=True, letter_id=dead.letter_id)
    row = row_of(db, store)
    assert row is not None
    assert row.generation > 0
    assert row.letter_id == dead.letter_id
    assert isinstance(run(replace(PLAIN, generation=0)), Stale)


def test_a_late_verdict_of_a_dead_child_is_void(db: Database, store: Store, run: Run) -> None:
    crash = Failure(Kind.crashed, "WorkerLost", "killed")
    assert isinstance(run(PLAIN), Completed)
    assert isinstance(record(db, store, PLAIN, crash, Policy(), LIMITS), Duplicate)
    with db.begin() as session:
        assert store.letters.count(session, "s", Filter()) == 0
