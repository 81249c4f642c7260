"""A job moves to its task's own consumer name, where a copy of it may have been before: its letter goes with it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import tenacity

from harness.core.errors import Permanent
from harness.core.events import Events
from harness.core.failure import Failure, Kind
from harness.core.message import Message
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.policy import Policy
from harness.core.signature import Signature
from harness.process import Copy, JobSpec, Limits, deliver, record
from harness.replay import replay
from harness.store import Database, Letter, Store
from harness.store.inbox import Arrival, InboxRow
from harness.store.letter import Filter

LIMITS = Limits(fence_wait=0.5, outage_hold=3.0)
POLICY = Policy(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_fixed(0), reason="tests")
HERE = Arrival("s", "s/own", "t", "j1", Message(b"[[],{},{}]", "application/json", "utf-8", {}, {}, "q"))
SPEC = JobSpec("s", "t", "s/own", Signature.of(lambda: None, {}), POLICY)
#: A copy in the hand of a worker that does not know the task, and one that does.
UNKNOWN, KNOWN = Copy(replace(HERE, consumer="s/t")), Copy(HERE)


class Place:
    def __init__(self, url: str) -> None:
        self.db, self.store = Database(url), Store.of("core")

    def run(self, copy: Copy, call: Any = lambda *_: None) -> Outcome:
        return deliver(self.db, self.store, copy, SPEC, [], {}, call, LIMITS)

    def row(self, copy: Copy) -> InboxRow | None:
        with self.db.begin() as session:
            return self.store.inbox.find(session, copy.key)

    def again(self, copy: Copy) -> Copy:
        """The relay's copy of the row that this one has."""
        row = self.row(copy)
        assert row is not None
        return replace(copy, generation=row.generation, dispatches=1)

    def letters(self) -> list[Letter]:
        """Oldest first."""
        with self.db.begin() as session:
            return self.store.letters.find(session, "s", Filter())[::-1]

    def dead_and_replayed(self) -> Letter:
        """No worker knew the task until the last try; then a person has replayed the letter."""
        failure = Failure(Kind.unknown_task, "LookupError", "no such task")
        assert isinstance(record(self.db, self.store, UNKNOWN, failure, POLICY, LIMITS), Deferred)
        dead = record(self.db, self.store, self.again(UNKNOWN), failure, POLICY, LIMITS)
        assert isinstance(dead, Dead)
        replay(self.db, self.store, "s", dead.letter_id, "op", Events())
        return self.letters()[0]


@pytest.fixture
def place(database: str) -> Iterator[Place]:
    made = Place(database)
    yield made
    made.db.dispose()


def permanent(*_: Any) -> None:
    raise Permanent("no")


def once_more(*_: Any) -> None:
    raise ValueError("once more")


def test_the_letter_goes_with_its_job(place: Place) -> None:
    place.dead_and_replayed()
    assert isinstance(place.run(place.again(UNKNOWN)), Deferred)
    assert isinstance(place.run(place.again(KNOWN)), Completed)
    [letter] = place.letters()
    assert (letter.consumer, letter.resolved_at is not None) == ("s/own", True)


def test_a_row_that_is_there_learns_of_the_letter(place: Place) -> None:
    """A second copy of the message waits for its next try already."""
    place.dead_and_replayed()
    assert isinstance(place.run(KNOWN, once_more), Deferred)
    assert isinstance(place.run(place.again(UNKNOWN)), Deferred)
    assert place.row(UNKNOWN) is None
    assert place.run(place.again(KNOWN)) == Completed(None, 2)
    [letter] = place.letters()
    assert letter.resolved_at is not None


def test_a_try_of_another_copy_does_not_forget_the_letter(place: Place) -> None:
    """It takes the place of the row that has just been moved."""
    place.dead_and_replayed()
    assert isinstance(place.run(place.again(UNKNOWN)), Deferred)
    assert isinstance(place.run(KNOWN, once_more), Deferred)
    assert isinstance(place.run(place.again(KNOWN)), Completed)
    [letter] = place.letters()
    assert letter.resolved_at is not None


def test_of_two_letters_of_one_job_one_stays_open(place: Place) -> None:
    """Else the moved one would say `replayed` for ever, of a job that nobody has."""
    first = place.dead_and_replayed()
    dead = place.run(KNOWN, permanent)
    assert isinstance(dead, Dead)
    assert isinstance(place.run(place.again(UNKNOWN)), Deferred)
    assert place.run(place.again(KNOWN)) == Stale(dead=True)
    moved, own = place.letters()
    assert (moved.id, moved.resolved_at is not None, moved.lineage[-1]["event"]) == (first.id, True, "superseded")
    assert moved.lineage[-1]["by"] == own.id == dead.letter_id
    assert (own.status, own.resolved_at) == ("pending_review", None)
    replay(place.db, place.store, "s", own.id, "op", Events())
    assert isinstance(place.run(place.again(KNOWN)), Completed)
    assert all(letter.resolved_at for letter in place.letters())
    assert isinstance(place.run(KNOWN), Duplicate)
