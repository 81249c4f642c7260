"""External effects: whatever comes in between, the handler is called once, and nobody's word but its own ends it."""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from harness.core.errors import NotReady, OutcomeUnknown, Permanent
from harness.core.events import Events
from harness.core.failure import Failure, Kind
from harness.core.message import Message
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.policy import Policy
from harness.core.reason import Reason
from harness.core.signature import Signature
from harness.process import Copy, Job, JobSpec, Limits, deliver, external, record
from harness.process.claim import ending_itself
from harness.process.external import Outside
from harness.process.settle import settle_alone
from harness.process.spec import External
from harness.replay import AlreadyReplayed, replay
from harness.store import Database, Store
from harness.store.database import DatabaseAway
from harness.store.inbox import Arrival, InboxRow
from harness.worker import kept

LIMITS = Limits(fence_wait=0.5, outage_hold=3.0)
ARRIVAL = Arrival("s", "s/t", "t", "j1", Message(b"[[],{},{}]", "application/json", "utf-8", {}, {}, "q"))
PLAIN = JobSpec("s", "t", "s/t", Signature.of(lambda: None, {}))
SPEC = replace(PLAIN, external=External(limit=20.0, margin=10.0, unknown=(ConnectionResetError,)))
STORE = Store.of("core")
FRESH = Copy(ARRIVAL, claim="100000000000000007 20")
FAILED = Failure(Kind.timed_out, "TimeLimitExceeded", "the hard time limit of 20 s was exceeded")
CRASHED = Failure(Kind.crashed, "WorkerLostError", "exited with signal 9")
Call = Callable[..., Any]


class Gone(BaseException):
    """The process dies here: nothing of the product may run after it."""


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    """All tests claim by the same number, which no two deliveries have."""
    vars(external._called).clear()


@pytest.fixture
def db(database: str) -> Iterator[Database]:
    made = Database(database, pool_size=4)
    with made.begin() as session:
        session.execute(text("CREATE TABLE effects (job_id text UNIQUE DEFERRABLE INITIALLY DEFERRED)"))
    yield made
    made.dispose()


class Calls:
    """A handler that counts its calls; `then` is what it does after it."""

    def __init__(self, then: Call = lambda session, job: None) -> None:
        self.count, self.keys, self.then = 0, set[str](), then

    def __call__(self, args: Any, kwargs: Any, session: Session, job: Job) -> Any:
        self.count += 1
        self.keys.add(job.idempotency_key)
        return self.then(session, job)


def run(db: Database, call: Call, copy: Copy = FRESH, spec: JobSpec = SPEC) -> Outcome:
    return deliver(db, STORE, copy, spec, [], {}, call, LIMITS)


def note(session: Session, job: Job | None = None) -> None:
    session.execute(text("INSERT INTO effects VALUES ('j1')"))


def one(db: Database, statement: str) -> Any:
    with db.begin() as session:
        return session.execute(text(statement)).scalar()


def state(db: Database) -> tuple[Any, int, int, int]:
    """Fence, effects, inbox rows, open letters."""
    with db.begin() as session:
        row = session.execute(
            text(
                "SELECT (SELECT state FROM core.processed_jobs), (SELECT count(*) FROM effects),"
                " (SELECT count(*) FROM core.inbox),"
                " (SELECT count(*) FROM core.dead_letters WHERE resolved_at IS NULL)"
            )
        ).one()
        return row[0], row[1], row[2], row[3]


def row(db: Database) -> InboxRow:
    with db.begin() as session:
        found = STORE.inbox.find(session, FRESH.key)
    assert found is not None
    return found


def die_in(db: Database, calls: Calls, copy: Copy) -> None:
    """Claim the job, call the handler, and die there."""

    def die(*_: Any) -> None:
        raise Gone

    calls.then = die
    with pytest.raises(Gone):
        deliver(db, STORE, copy, SPEC, [], {}, calls, LIMITS, interrupts=lambda error: isinstance(error, Gone))


def leave_claimed(db: Database) -> Copy:
    """Claim the job, die in the handler, and let the time pass; the copy that the relay sends then."""
    die_in(db, Calls(), FRESH)
    return expire(db)


def expire(db: Database) -> Copy:
    one(db, "UPDATE core.inbox SET available_at = now() - interval '1 s' RETURNING 1")
    return Copy(ARRIVAL, generation=row(db).generation, dispatches=1)


def test_the_claim_is_committed_with_the_message_before_the_handler_is_called(db: Database) -> None:
    seen: list[Any] = []

    def look(session: Session, job: Job) -> str:
        seen.append((state(db), row(db).message, one(db, "SELECT available_at - now() FROM core.inbox")))
        seen.append(one(db, "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"))
        note(session)
        return "answer"

    assert run(db, Calls(look)) == Completed("answer")
    (claimed, message, left), idle = seen
    assert claimed == ("claimed", 0, 1, 0)
    assert message == ARRIVAL.message
    assert timedelta(seconds=25) < left <= timedelta(seconds=30)
    assert idle == 0, "no transaction is open while the other side is called"
    assert state(db) == ("done", 1, 0, 0)
    assert run(db, Calls()) == Duplicate()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no"), None),
        (NotReady("no"), None),
        (Permanent("no"), Reason.permanent),
        (OutcomeUnknown("no answer"), Reason.outcome_unknown),
        (ConnectionResetError("no answer"), Reason.outcome_unknown),
    ],
)
def test_a_failure_takes_the_claim_back_with_its_outcome(db: Database, error: Exception, reason: Reason | None) -> None:
    def fail(session: Session, job: Job) -> None:
        note(session)
        raise error

    outcome = run(db, Calls(fail))
    if reason is None:
        assert isinstance(outcome, Deferred)
        assert state(db) == ("waiting", 0, 1, 0)
        again = Calls()
        assert isinstance(run(db, again, Copy(ARRIVAL, generation=row(db).generation)), Completed)
        assert (again.count, state(db)) == (1, ("done", 0, 0, 0))
    else:
        assert isinstance(outcome, Dead)
        assert (outcome.reason, state(db)) == (reason, ("dead", 0, 0, 1))


def test_other_copies_stand_back_from_a_claim(db: Database) -> None:
    others = Calls()
    seen: list[Outcome] = []

    def meanwhile(*_: Any) -> None:
        claim = row(db).generation
        seen.append(run(db, others, Copy(ARRIVAL)))
        seen.append(run(db, others, Copy(ARRIVAL, redelivered=True)))
        seen.append(run(db, others, Copy(ARRIVAL, generation=3)))
        seen.append(run(db, others, Copy(ARRIVAL, generation=3, dispatches=2)))
        seen.append(run(db, others, Copy(ARRIVAL, generation=claim, dispatches=1)))  # not before its time
        seen.append(run(db, others, Copy(ARRIVAL), PLAIN))
        seen.append(record(db, STORE, Copy(ARRIVAL), CRASHED, Policy(), LIMITS))
        seen.append(record(db, STORE, Copy(ARRIVAL, claim="100000000000000008 20"), CRASHED, Policy(), LIMITS))

    assert isinstance(run(db, Calls(meanwhile)), Completed)
    assert seen == [Stale()] * 8
    assert others.count == 0
    assert state(db) == ("done", 0, 0, 0)


@pytest.mark.parametrize("times", [1, 6])
@pytest.mark.parametrize("spec", [SPEC, PLAIN])
def test_a_claim_whose_time_is_over_is_neither_run_nor_done(db: Database, spec: JobSpec, times: int) -> None:
    late = replace(leave_claimed(db), dispatches=times)
    one(db, f"UPDATE core.inbox SET deliveries = {times} RETURNING 1")
    again = Calls()
    outcome = run(db, again, late, spec)
    assert isinstance(outcome, Dead)
    assert (outcome.reason, again.count, state(db)) == (Reason.outcome_unknown, 0, ("dead", 0, 0, 1))
    assert "can't be told" in outcome.failure.message
    assert run(db, again, late) == Stale(dead=True)
    assert again.count == 0


def test_a_worker_that_does_not_know_the_task_finds_an_abandoned_claim(db: Database) -> None:
    late = leave_claimed(db)
    unknown = Failure(Kind.unknown_task, "LookupError", "?")
    outcome = record(db, STORE, late, unknown, Policy(), LIMITS)
    assert isinstance(outcome, Dead)
    assert outcome.reason is Reason.outcome_unknown


def test_a_claim_under_an_old_name_is_not_run_under_the_new_one(db: Database) -> None:
    late, again = leave_claimed(db), Calls()
    outcome = run(db, again, late, replace(SPEC, consumer="s/stable"))
    assert isinstance(outcome, Dead)
    assert (outcome.reason, again.count) == (Reason.outcome_unknown, 0)


def test_two_who_find_it_at_once_write_one_letter(db: Database) -> None:
    late, again = leave_claimed(db), Calls()
    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(lambda _: run(db, again, late), range(8)))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Dead"] + ["Stale"] * 7
    assert one(db, "SELECT count(*) FROM core.dead_letters") == 1
    assert one(db, "SELECT count(*) FROM core.audit_log") == 1
    assert again.count == 0


@pytest.mark.parametrize("redelivered", [False, True])
def test_the_parent_whose_child_is_dead_need_not_wait(db: Database, redelivered: bool) -> None:
    copy = replace(FRESH, redelivered=redelivered)
    die_in(db, Calls(), copy)
    outcome = record(db, STORE, copy, FAILED, Policy(), LIMITS)
    assert isinstance(outcome, Dead)
    assert (outcome.reason, outcome.failure.error_type) == (Reason.outcome_unknown, "TimeLimitExceeded")
    assert "hard time limit" in outcome.failure.message
    assert state(db) == ("dead", 0, 0, 1)


def test_a_child_that_died_before_its_claim_is_a_failed_try(db: Database) -> None:
    outcome = record(db, STORE, FRESH, CRASHED, Policy(), LIMITS)
    assert isinstance(outcome, Deferred)
    assert isinstance(run(db, Calls(), Copy(ARRIVAL, generation=row(db).generation)), Completed)


@pytest.mark.parametrize("how", ["returns", "raises"])
def test_who_comes_back_after_its_claim_was_given_up_changes_nothing(
    db: Database, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    found: list[Outcome] = []

    def late(session: Session, job: Job) -> None:
        note(session)
        found.append(run(db, Calls(), expire(db)))
        if how == "raises":
            raise ValueError("too late")

    with caplog.at_level(logging.ERROR, "harness"):
        assert run(db, Calls(late)) == Stale(dead=True)
    assert isinstance(found[0], Dead)
    assert state(db) == ("dead", 0, 0, 1)
    assert "after its claim had been given up" in caplog.text
    [event] = one(db, "SELECT lineage FROM core.dead_letters")
    assert event["event"] == "came_late"
    assert (
        event["handler"] == ("returned" if how == "returns" else "ended with builtins.ValueError")
        or event["handler"] == "ended with ValueError"
    )


def test_who_comes_back_beside_a_replay_that_is_at_work_changes_nothing(db: Database) -> None:
    inner = Calls()

    def replayed(session: Session, job: Job) -> None:
        found = run(db, Calls(), expire(db))
        assert isinstance(found, Dead)
        replay(db, STORE, "s", found.letter_id, "ann", Events())
        copy = Copy(ARRIVAL, generation=row(db).generation, dispatches=1)
        die_in(db, inner, copy)
        with pytest.raises(AlreadyReplayed):
            replay(db, STORE, "s", found.letter_id, "bob", Events())
        note(session)

    outer = Calls(replayed)
    assert run(db, outer) == Stale()
    assert state(db)[:3] == ("claimed", 0, 1), "the claim of the replay stands"
    assert outer.keys == inner.keys


def test_a_person_may_replay_it_with_the_same_key(db: Database) -> None:
    first = leave_claimed(db)
    letter = run(db, Calls(), first)
    assert isinstance(letter, Dead)
    replay(db, STORE, "s", letter.letter_id, "ann", Events())
    calls = Calls(note)
    assert isinstance(run(db, calls, Copy(ARRIVAL, generation=row(db).generation, dispatches=1)), Completed)
    assert (calls.count, state(db)) == (1, ("done", 1, 0, 0))
    assert one(db, "SELECT status FROM core.dead_letters") == "replayed"


# -- answers that are lost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_a_lost_answer_to_the_claim_is_settled_by_the_claim(
    db: Database, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    claim, lost = Outside._claim, []

    def losing(self: Outside) -> Any:
        if not lost:
            lost.append(claim(self) if committed else None)
            raise DatabaseAway("lost")
        return claim(self)

    monkeypatch.setattr(Outside, "_claim", losing)
    calls = Calls(note)
    assert isinstance(run(db, calls), Completed)
    assert (calls.count, state(db)) == (1, ("done", 1, 0, 0))


@pytest.mark.parametrize("wrote", [True, False])
@pytest.mark.parametrize("committed", [True, False])
def test_a_lost_answer_to_done_is_settled_by_the_fence(
    db: Database, monkeypatch: pytest.MonkeyPatch, committed: bool, wrote: bool
) -> None:
    commit, lost = Session.commit, []

    def losing(session: Session) -> None:
        if session.get_bind().__class__.__name__ == "Connection" and type(session).__name__ == "WorkSession":
            raw: Any = session.connection().connection.dbapi_connection
            if committed:
                commit(session)
            raw.close()
            lost.append(1)
            raise OperationalError("COMMIT", {}, Exception("server closed the connection"))
        commit(session)

    calls = Calls(note if wrote else lambda *_: None)
    with monkeypatch.context() as patched:
        patched.setattr(Session, "commit", losing)
        outcome = run(db, calls)
    assert lost == [1]
    assert calls.count == 1
    if committed:
        assert outcome == Duplicate()
        assert state(db) == ("done", int(wrote), 0, 0)
    elif not wrote:
        assert outcome == Completed()
        assert state(db) == ("done", 0, 0, 0)
    else:
        assert isinstance(outcome, Dead)
        assert outcome.reason is Reason.outcome_unknown
        assert state(db) == ("dead", 0, 0, 1)


def test_a_record_that_postgresql_refuses_after_the_call_is_unknown_not_tried_again(db: Database) -> None:
    one(db, "INSERT INTO effects VALUES ('j1') RETURNING 1")  # the constraint is looked at by COMMIT alone
    calls = Calls(note)
    outcome = run(db, calls)
    assert isinstance(outcome, Dead)
    assert (outcome.reason, calls.count) == (Reason.outcome_unknown, 1)
    assert "the handler returned" in outcome.failure.message


def test_a_deadlock_in_the_handler_is_not_run_again_at_once(db: Database) -> None:
    def deadlock(session: Session, job: Job) -> None:
        session.execute(text("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40P01'; END $$"))

    calls = Calls(deadlock)
    assert isinstance(run(db, calls), Deferred)
    assert calls.count == 1


def test_a_delivery_that_begins_again_in_its_process_does_not_call_again(db: Database) -> None:
    """As where a soft time limit strikes between the handler and the verdict, and Celery's tracer has it run again."""
    calls = Calls()
    leave_claimed(db)
    outcome = run(db, calls, FRESH)
    assert isinstance(outcome, Dead)
    assert (outcome.reason, calls.count) == (Reason.outcome_unknown, 0)


def test_the_database_goes_away_before_the_verdict(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["harness.process.deliver"]  # the package has the function under this name
    verdict, lost = module.verdict, []

    def losing(*args: Any, **kwargs: Any) -> Any:
        if not lost:
            lost.append(1)
            raise DatabaseAway("lost")
        return verdict(*args, **kwargs)

    monkeypatch.setattr(module, "verdict", losing)

    def fail(session: Session, job: Job) -> None:
        raise Permanent("no")

    calls = Calls(fail)
    outcome = run(db, calls)
    assert isinstance(outcome, Dead)
    assert (outcome.reason, calls.count, lost) == (Reason.permanent, 1, [1])


# -- what else may be said of it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("copy", "reason"),
    [
        (replace(FRESH, expires=datetime.now(UTC) - timedelta(hours=1)), Reason.expired),
        (replace(FRESH, revoked="revoked"), Reason.revoked),
        (replace(FRESH, sent_at=datetime.now(UTC) - timedelta(days=9)), Reason.too_old),
    ],
)
def test_what_may_not_run_is_not_claimed(db: Database, copy: Copy, reason: Reason) -> None:
    calls = Calls()
    outcome = run(db, calls, copy)
    assert isinstance(outcome, Dead)
    assert (outcome.reason, calls.count, state(db)) == (reason, 0, ("dead", 0, 0, 1))


def test_an_eta_is_waited_for_first(db: Database) -> None:
    calls = Calls()
    assert isinstance(run(db, calls, replace(FRESH, eta=datetime.now(UTC) + timedelta(hours=1))), Deferred)
    assert calls.count == 0
    assert isinstance(run(db, calls, Copy(ARRIVAL, generation=row(db).generation, dispatches=1)), Completed)


def test_a_row_that_was_enqueued_under_the_same_id_is_taken_over(db: Database) -> None:
    with db.begin() as session:
        STORE.inbox.add(session, ARRIVAL)
    calls = Calls(note)
    assert isinstance(run(db, calls, FRESH), Completed)
    assert isinstance(run(db, calls, Copy(ARRIVAL, generation=0, dispatches=1)), Duplicate)
    assert (calls.count, state(db)) == (1, ("done", 1, 0, 0))


def test_what_comes_after_it_is_remembered_by_its_row(db: Database) -> None:
    copy = replace(FRESH, goes_on=True)
    outcome = deliver(db, STORE, copy, SPEC, [], {}, Calls(lambda *_: 7), LIMITS, keep=kept.write)
    assert outcome == Completed(7)
    assert state(db) == ("done", 0, 1, 0)
    again = deliver(db, STORE, replace(expire(db), goes_on=True), SPEC, [], {}, Calls(), LIMITS, keep=kept.write)
    assert isinstance(again, Duplicate)
    assert kept.read(again.result) == 7
    settle_alone(db, STORE, FRESH, LIMITS)
    assert state(db) == ("done", 0, 0, 0)


def test_a_process_that_outlives_its_parent_ends_itself() -> None:
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        with ending_itself(60.0):
            pass
        with ending_itself(0.2):
            time.sleep(30)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGALRM
