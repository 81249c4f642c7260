"""A job with a next step: its inbox row, and its kept result, outlive the work until the step has been sent."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from harness.core.message import Message
from harness.core.outcome import Completed, Deferred, Duplicate, Outcome, Stale
from harness.core.policy import Policy
from harness.core.signature import Signature
from harness.process import Copy, JobSpec, Limits, deliver
from harness.process.settle import settle_alone
from harness.store import Database, Store
from harness.store.inbox import Arrival, InboxRow
from harness.store.processed_jobs import FenceState
from harness.worker import kept

LIMITS = Limits(fence_wait=0.5, outage_hold=3.0)
ARRIVAL = Arrival("s", "s/t", "t", "j1", Message(b"[[],{},{}]", "application/json", "utf-8", {}, {}, "q"))
SPEC = JobSpec("s", "t", "s/t", Signature.of(lambda: None, {}), Policy())
STORE = Store.of("core")
FRESH = Copy(ARRIVAL, goes_on=True)


class Once:
    """A handler that fails its first try."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, *_: Any) -> dict[str, int]:
        self.runs += 1
        if self.runs == 1:
            raise ValueError("once")
        return {"runs": self.runs}


@pytest.fixture
def db(database: str) -> Iterator[Database]:
    made = Database(database)
    yield made
    made.dispose()


def run(db: Database, copy: Copy, call: Any) -> Outcome:
    return deliver(db, STORE, copy, SPEC, [], {}, call, LIMITS, keep=kept.write)


def row(db: Database) -> InboxRow | None:
    with db.begin() as session:
        return STORE.inbox.find(session, FRESH.key)


def test_the_row_stays_until_the_step_is_sent(db: Database) -> None:
    call = Once()
    assert isinstance(run(db, FRESH, call), Deferred)
    waiting = row(db)
    assert waiting is not None
    relayed = replace(FRESH, generation=waiting.generation, dispatches=1)
    assert run(db, relayed, call) == Completed({"runs": 2}, 2)
    assert row(db) is not None, "whoever dies now has left a row that the relay sends once more"
    for late in (relayed, replace(relayed, dispatches=2), replace(FRESH, redelivered=True)):
        outcome = run(db, late, call)
        assert isinstance(outcome, Duplicate)
        assert kept.read(outcome.result) == {"runs": 2}
    assert (call.runs, row(db) is not None) == (2, True)
    assert isinstance(settle_alone(db, STORE, replace(relayed, goes_on=False), LIMITS), Duplicate)
    assert row(db) is None


def test_without_a_next_step_it_goes_with_the_work(db: Database) -> None:
    call, alone = Once(), replace(FRESH, goes_on=False)
    run(db, alone, call)
    waiting = row(db)
    assert waiting is not None
    assert isinstance(run(db, replace(alone, generation=waiting.generation), call), Completed)
    assert row(db) is None


def test_a_stale_copy_says_whose_the_job_is(db: Database) -> None:
    assert isinstance(run(db, FRESH, Once()), Deferred)
    assert run(db, FRESH, Once()) == Stale(dead=False)
    with db.begin() as session:
        STORE.fence.set_state(session, FRESH.key, FenceState.DEAD)
    assert run(db, FRESH, Once()) == Stale(dead=True)


@pytest.mark.parametrize("result", [None, 0, {"a": [1, 2.5, None]}, "ü\0"])
def test_a_result_is_kept_as_it_was(result: object) -> None:
    assert kept.read(kept.write(result)) == result


def test_what_is_not_kept_is_no_none() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for odd in (object(), circle, {1: object()}):
        assert kept.read(kept.write(odd)) is kept.HandedOn
    assert kept.read(None) is kept.NotKept
    assert kept.read(b"\xff") is kept.HandedOn
