"""`NotReady`: waits without spending tries, up to a deadline by the database's clock, and does not fill its row."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import tenacity
from sqlalchemy import text

from harness.core.errors import NotReady
from harness.core.message import Message
from harness.core.outcome import Completed, Dead, Deferred, Outcome
from harness.core.policy import Policy
from harness.core.reason import Reason
from harness.core.signature import Signature
from harness.process import Copy, JobSpec, Limits, deliver, history
from harness.store import Database, Store
from harness.store.inbox import Arrival, InboxRow

LIMITS = Limits(fence_wait=0.5, outage_hold=3.0)
ARRIVAL = Arrival("s", "s/t", "t", "j1", Message(b"[[],{},{}]", "application/json", "utf-8", {}, {}, "q"))
POLICY = Policy(not_ready_wait=tenacity.wait_fixed(600), not_ready_deadline=3600)
SPEC = JobSpec("s", "t", "s/t", Signature.of(lambda: None, {}), POLICY)
STORE = Store.of("core")


@pytest.fixture
def db(database: str) -> Iterator[Database]:
    made = Database(database)
    yield made
    made.dispose()


def wait(*_: Any) -> None:
    raise NotReady("its account is not there")


def run(db: Database, copy: Copy, call: Any = wait) -> Outcome:
    return deliver(db, STORE, copy, SPEC, [], {}, call, LIMITS)


def row(db: Database) -> InboxRow:
    with db.begin() as session:
        found = STORE.inbox.find(session, Copy(ARRIVAL).key)
    assert found is not None
    return found


def passes(db: Database, seconds: float) -> None:
    with db.begin() as session:
        session.execute(
            text(
                "UPDATE core.inbox SET created_at = created_at - :by, available_at = available_at - :by,"
                " leased_until = leased_until - :by"
            ),
            {"by": timedelta(seconds=seconds)},
        )


def relayed(db: Database) -> Copy:
    return Copy(ARRIVAL, generation=row(db).generation, dispatches=1)


def test_it_waits_without_spending_tries_and_dies_at_the_deadline(db: Database) -> None:
    outcome = run(db, Copy(ARRIVAL))
    for _ in range(6):
        assert isinstance(outcome, Deferred)
        assert (outcome.spends_try, row(db).attempts) == (False, 0)
        passes(db, 600)
        outcome = run(db, relayed(db))
    assert isinstance(outcome, Dead)
    assert (outcome.reason, outcome.attempts) == (Reason.not_ready, 1)


def test_what_it_says_again_and_again_is_one_entry(db: Database) -> None:
    run(db, Copy(ARRIVAL))
    for _ in range(4):
        passes(db, 600)
        run(db, relayed(db))
    [entry] = row(db).failures
    assert entry["times"] == 5
    assert entry["first_at"] < entry["at"]


def test_the_last_wait_ends_at_the_deadline_and_then_it_applies(db: Database) -> None:
    run(db, Copy(ARRIVAL))
    passes(db, 3300)
    outcome = run(db, relayed(db))
    assert isinstance(outcome, Deferred)
    assert 290 < outcome.delay <= 300
    passes(db, 300)
    assert isinstance(run(db, relayed(db), lambda *_: None), Completed)


def test_an_eta_is_no_part_of_the_deadline(db: Database) -> None:
    run(db, replace(Copy(ARRIVAL), eta=datetime.now(UTC) + timedelta(days=2)))
    passes(db, 2 * 86_400 + 10)
    assert isinstance(run(db, relayed(db)), Deferred)
    passes(db, 1800)
    assert isinstance(run(db, relayed(db)), Deferred)
    passes(db, 1900)
    outcome = run(db, relayed(db))
    assert isinstance(outcome, Dead)
    assert outcome.reason is Reason.not_ready


def test_an_error_in_between_does_not_begin_the_deadline_again(db: Database) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("once")

    run(db, Copy(ARRIVAL))
    passes(db, 1800)
    outcome = run(db, relayed(db), fail)
    assert isinstance(outcome, Deferred)
    assert outcome.spends_try
    passes(db, 1900)
    outcome = run(db, relayed(db))
    assert isinstance(outcome, Dead)
    assert outcome.reason is Reason.not_ready


def test_the_list_is_bounded_whatever_is_said() -> None:
    failures: list[dict[str, Any]] = []
    for number in range(300):
        entry = {"kind": "not_ready", "error_type": "E", "fingerprint": str(number), "attempt": 1, "at": str(number)}
        failures = history.add(failures, entry)
    assert len(failures) == history.KEPT
    assert failures[-1]["at"] == "299"
