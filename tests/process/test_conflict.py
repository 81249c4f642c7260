"""The same id with other content: a letter of its own, by whatever way it comes; the first job stays as it is."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import tenacity

from harness.core.alike import Forms, conflict_id
from harness.core.errors import Permanent
from harness.core.events import Events
from harness.core.failure import Failure, Kind
from harness.core.message import Message, digest
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.policy import Policy
from harness.core.reason import Reason
from harness.core.signature import Signature
from harness.process import Copy, JobSpec, Limits, deliver, record
from harness.process.busy import stand_aside
from harness.process.count import count
from harness.process.spec import External
from harness.replay import discard, replay
from harness.store import Database, FenceState, Key, Letter, Store
from harness.store.inbox import Arrival
from harness.store.letter import Filter

LIMITS = Limits(fence_wait=0.5, outage_hold=2.0, max_deliveries=3)
POLICY = Policy(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_fixed(0), reason="tests")


def handler(a: int, b: int = 5) -> None:
    """For its signature."""


SPEC = JobSpec("s", "t", "s/own", Signature.of(handler, {}), POLICY)


def body(a: int) -> bytes:
    return b'[[], {"a": %d}, {}]' % a


def copy(a: int, *, job_id: str = "j1", known: bool = True, **more: Any) -> Copy:
    message = Message(body(a), "application/json", "utf-8", {"id": job_id, "task": "t"}, {}, "q")
    content = digest([], {"a": a}) if known else None
    return Copy(Arrival("s", "s/own", "t", job_id, message, content), **more)


class Place:
    def __init__(self, url: str) -> None:
        self.db, self.store = Database(url), Store.of("core")
        self.ran: list[tuple[str, int]] = []

    def run(self, one: Copy, a: int, fails: BaseException | None = None, kwargs: Any = None, args: Any = ()) -> Outcome:
        def call(args: Any, kwargs: Any, session: Any, job: Any) -> None:
            self.ran.append((job.id, a))
            if fails is not None:
                raise fails

        given = {"a": a} if kwargs is None else kwargs
        return deliver(self.db, self.store, one, SPEC, args, given, call, LIMITS)

    def enqueue(self, one: Copy) -> None:
        with self.db.begin() as session:
            assert self.store.inbox.add(session, one.arrival)

    def relayed(self, one: Copy) -> Copy:
        with self.db.begin() as session:
            row = self.store.inbox.find(session, one.key)
        assert row is not None
        return replace(one, generation=row.generation, dispatches=1)

    def fence(self, job_id: str) -> FenceState | None:
        with self.db.begin() as session:
            fence = self.store.fence.look(session, Key(job_id, "s/own"))
        return None if fence is None else fence.state

    def row(self, job_id: str = "j1") -> Message | None:
        with self.db.begin() as session:
            row = self.store.inbox.find(session, Key(job_id, "s/own"))
        return None if row is None else row.message

    def letters(self) -> list[Letter]:
        with self.db.begin() as session:
            found = self.store.letters.find(session, "s", Filter())[::-1]
        # Whoever has written it, a person sees what the job was given.
        assert all(one.payload["kwargs"] == json.loads(one.message.body)[1] for one in found)
        return found

    def audit(self) -> list[Any]:
        with self.db.begin() as session:
            return [row for letter in self.letters() for row in self.store.audit.of_letter(session, letter.id)]


@pytest.fixture
def place(database: str) -> Iterator[Place]:
    made = Place(database)
    yield made
    made.db.dispose()


def own_id(a: int) -> str:
    return conflict_id("j1", digest([], {"a": a}))


def is_conflict(place: Place, outcome: Outcome, a: int) -> None:
    assert isinstance(outcome, Dead), outcome
    assert (outcome.reason, outcome.job_id) == (Reason.conflict, own_id(a))
    letter = next(one for one in place.letters() if one.id == outcome.letter_id)
    assert (letter.job_id, letter.message.body, letter.reason) == (own_id(a), body(a), Reason.conflict)
    assert "j1" in letter.error_message
    assert place.fence(own_id(a)) is FenceState.DEAD


def test_beside_a_job_that_is_done(place: Place) -> None:
    assert isinstance(place.run(copy(1), 1), Completed)
    is_conflict(place, place.run(copy(2), 2), 2)
    assert isinstance(place.run(copy(1), 1), Duplicate)
    assert place.run(copy(2), 2) == Stale(conflict=True)  # the same conflict again
    is_conflict(place, place.run(copy(3), 3), 3)
    assert place.ran == [("j1", 1)]
    assert (place.fence("j1"), len(place.letters())) == (FenceState.DONE, 2)
    assert [row["details"]["conflicts_with"] for row in place.audit()] == ["j1", "j1"]


def test_beside_a_job_that_waits(place: Place) -> None:
    assert isinstance(place.run(copy(1), 1, ValueError("once more")), Deferred)
    is_conflict(place, place.run(copy(2), 2), 2)
    assert place.run(copy(1), 1) == Stale()
    assert place.row() is not None
    assert isinstance(place.run(place.relayed(copy(1)), 1), Completed)


def test_beside_a_job_that_is_dead(place: Place) -> None:
    assert isinstance(place.run(copy(1), 1, Permanent("no")), Dead)
    is_conflict(place, place.run(copy(2), 2), 2)
    assert [letter.job_id for letter in place.letters()] == ["j1", own_id(2)]
    assert place.run(copy(1), 1) == Stale(dead=True)


def test_redelivered_revoked_crashed_and_late(place: Place) -> None:
    """Whatever else is to be said of the copy: its id is another job's."""
    place.run(copy(1), 1)
    is_conflict(place, place.run(copy(2, redelivered=True), 2), 2)
    is_conflict(place, place.run(copy(3, revoked="revoked"), 3), 3)
    crashed = Failure(Kind.crashed, "WorkerLost", "died")
    is_conflict(place, record(place.db, place.store, copy(4, known=False), crashed, POLICY, LIMITS), 4)
    assert place.ran == [("j1", 1)]


def test_a_row_that_another_content_overtook(place: Place) -> None:
    """Enqueued, then overtaken by a message: the row is not removed with the first job, and becomes a letter."""
    place.enqueue(copy(2))
    assert isinstance(place.run(copy(1), 1), Completed)
    assert isinstance(place.run(copy(1), 1), Duplicate)
    assert place.row() is not None
    is_conflict(place, place.run(place.relayed(copy(2)), 2), 2)
    assert place.row() is None


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("fails", [ValueError("once more"), Permanent("no")])
def test_a_row_in_the_way_of_a_verdict(place: Place, fails: Exception, known: bool) -> None:
    place.enqueue(copy(2, known=known))
    outcome = place.run(copy(1), 1, fails)
    assert isinstance(outcome, Deferred if isinstance(fails, ValueError) else Dead)
    conflicts = [letter for letter in place.letters() if letter.reason is Reason.conflict]
    assert [(letter.job_id, letter.message.body) for letter in conflicts] == [(own_id(2), body(2))]
    message = place.row()
    assert message is None if isinstance(fails, Permanent) else message is not None and message.body == body(1)


def test_a_row_in_the_way_of_a_copy_that_is_counted(place: Place) -> None:
    place.enqueue(copy(2))
    assert isinstance(place.run(copy(1, redelivered=True), 1), Completed)
    assert [letter.job_id for letter in place.letters()] == [own_id(2)]
    assert (place.ran, place.row()) == ([("j1", 1)], None)


def test_the_same_said_otherwise_is_no_conflict(place: Place) -> None:
    """By position, with the default written out; and what nobody can compare."""
    assert isinstance(place.run(copy(1), 1), Completed)
    said: list[tuple[list[Any], dict[str, Any]]] = [
        ([1], {}),
        ([1, 5], {}),
        ([1], {"b": 5}),
        ([], {"a": 1, "b": 5}),
        ([], {"b": 5, "a": 1}),
    ]
    for args, kwargs in said:
        other = copy(1)
        other = replace(other, arrival=replace(other.arrival, digest=digest(args, kwargs)))
        assert isinstance(place.run(other, 1, args=args, kwargs=kwargs), Duplicate), (args, kwargs)
    for args, kwargs in (([1, 6], {}), ([1.0], {}), (["1"], {})):
        other = copy(1)
        other = replace(other, arrival=replace(other.arrival, digest=digest(args, kwargs)))
        assert isinstance(place.run(other, 1, args=args, kwargs=kwargs), Dead), (args, kwargs)
    thing = object()
    other = replace(copy(1), arrival=replace(copy(1).arrival, digest=digest([thing], {})))
    assert isinstance(place.run(other, 1, args=[thing], kwargs={}), Duplicate)
    unknown = replace(copy(1).arrival, digest=None, message=Message(b"?", None, None, {}, {}, "q"))
    assert isinstance(place.run(replace(copy(1), arrival=unknown), 1), Duplicate)


# -- the same, said otherwise ----------------------------------------------------------------------------------------

#: What `copy(1)` says by name.
OTHERWISE: list[tuple[list[Any], dict[str, Any]]] = [([1], {}), ([1, 5], {}), ([], {"a": 1, "b": 5})]


def said(args: list[Any], kwargs: dict[str, Any], known: bool = True, **more: Any) -> Copy:
    """A message as Celery writes it, with these arguments."""
    one = copy(1, **more)
    message = replace(one.arrival.message, body=json.dumps([args, kwargs, {}]).encode())
    content = digest(args, kwargs) if known else None
    return replace(one, arrival=replace(one.arrival, message=message, digest=content))


def knowing(place: Place) -> Place:
    """With a store that knows the handlers, as that of an app does."""

    def read(message: Message) -> tuple[list[Any], dict[str, Any]]:
        args, kwargs, _ = json.loads(message.body)
        return args, kwargs

    place.store = place.store.with_forms(Forms({"t": SPEC.signature.sent}.get, read))
    return place


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("fails", [ValueError("once more"), Permanent("no")])
def test_a_row_that_says_the_same_is_in_nobodys_way(place: Place, fails: Exception, known: bool) -> None:
    """It is the job's own: enqueued by name, and sent by position."""
    knowing(place).enqueue(copy(1, known=known))
    outcome = place.run(said([1], {}), 1, fails, kwargs={}, args=[1])
    assert isinstance(outcome, Deferred if isinstance(fails, ValueError) else Dead)
    assert [letter.reason for letter in place.letters()] == ([Reason.permanent] if isinstance(fails, Permanent) else [])
    assert (place.row() is None) == isinstance(fails, Permanent)


@pytest.mark.parametrize(("args", "kwargs"), OTHERWISE)
def test_what_says_the_same_by_every_way(place: Place, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Counted, claimed, waiting for another copy, and when its process has died."""
    knowing(place).enqueue(copy(1))
    crashed = Failure(Kind.crashed, "WorkerLost", "died")
    assert isinstance(stand_aside(place.db, place.store, said(args, kwargs), LIMITS), Deferred)
    assert isinstance(count(place.db, place.store, said(args, kwargs, redelivered=True), LIMITS), tuple)
    assert place.run(said(args, kwargs), 1, kwargs=kwargs, args=args) == Stale()
    assert isinstance(place.run(place.relayed(copy(1)), 1), Completed)
    again = record(place.db, place.store, said(args, kwargs, known=False), crashed, POLICY, LIMITS)
    assert isinstance(again, Duplicate)
    assert (place.ran, place.letters(), place.row()) == ([("j1", 1)], [], None)


def test_a_claim_keeps_a_row_that_says_the_same(place: Place) -> None:
    knowing(place).enqueue(copy(1))
    external = replace(SPEC, external=External(limit=20.0))
    outcome = deliver(place.db, place.store, said([1], {}), external, (1,), {}, lambda *_: None, LIMITS)
    assert (type(outcome), place.letters(), place.row()) == (Completed, [], None)


@pytest.mark.parametrize("does", ["replay", "discard"])
def test_what_says_the_same_is_not_in_the_way_of_a_replay(place: Place, does: str) -> None:
    dead = knowing(place).run(copy(1), 1, Permanent("no"))
    assert isinstance(dead, Dead)
    place.enqueue(said([1], {}))
    if does == "replay":
        replay(place.db, place.store, "s", dead.letter_id, "op", Events())
        assert isinstance(place.run(place.relayed(copy(1)), 1), Completed)
    else:
        discard(place.db, place.store, "s", dead.letter_id, "op", Events(), "no need")
    assert [letter.reason for letter in place.letters()] == [Reason.permanent]
    assert place.row() is None


def test_one_conflict_has_one_letter_however_it_is_said(place: Place) -> None:
    knowing(place)
    crashed = Failure(Kind.crashed, "WorkerLost", "died")
    assert isinstance(place.run(copy(1), 1), Completed)
    assert isinstance(place.run(said([2], {}), 2, kwargs={}, args=[2]), Dead)
    assert record(place.db, place.store, said([2, 5], {}), crashed, POLICY, LIMITS) == Stale(conflict=True)
    assert isinstance(record(place.db, place.store, said([1, 6], {}), crashed, POLICY, LIMITS), Dead)
    assert isinstance(record(place.db, place.store, said([1, "x", 3], {}), crashed, POLICY, LIMITS), Dead)
    assert len(place.letters()) == 3


def test_a_replay_runs_under_its_own_id(place: Place) -> None:
    place.run(copy(1), 1)
    dead = place.run(copy(2), 2)
    assert isinstance(dead, Dead)
    replay(place.db, place.store, "s", dead.letter_id, "op", Events())
    again = copy(2, job_id=own_id(2))
    assert isinstance(place.run(place.relayed(again), 2), Completed)
    assert place.ran == [("j1", 1), (own_id(2), 2)]
    assert all(letter.resolved_at for letter in place.letters())
    assert place.run(copy(2), 2) == Stale(conflict=True)  # it has been done, as what it is


# -- rows that come in between ---------------------------------------------------------------------------------------


def test_a_counted_copy_is_not_taken_for_the_one_that_waits(place: Place) -> None:
    """The first was counted, and its worker died; then the other content is redelivered."""
    assert not isinstance(count(place.db, place.store, copy(1, redelivered=True), LIMITS), Duplicate | Stale)
    is_conflict(place, place.run(copy(2, redelivered=True), 2), 2)
    crashed = Failure(Kind.crashed, "WorkerLost", "died")
    is_conflict(place, record(place.db, place.store, copy(3, redelivered=True), crashed, POLICY, LIMITS), 3)
    assert place.row() is not None
    assert isinstance(place.run(place.relayed(copy(1)), 1), Completed)
    assert place.ran == [("j1", 1)]


def test_a_late_copy_of_an_evicted_row_does_not_take_its_successor(place: Place) -> None:
    place.enqueue(copy(2))
    late = place.relayed(copy(2))
    counted = count(place.db, place.store, copy(1, redelivered=True), LIMITS)
    assert isinstance(counted, tuple)
    assert place.run(late, 2) == Stale(conflict=True)
    assert isinstance(place.run(counted[0], 1), Completed)
    assert (place.ran, place.row()) == ([("j1", 1)], None)


@pytest.mark.parametrize("fails", [None, Permanent("no")])
@pytest.mark.parametrize("other", [1, 3])
def test_a_late_copy_leaves_a_row_with_another_content(place: Place, fails: Exception | None, other: int) -> None:
    """It was put there without a look at the fence, by a copy that had waited too long."""
    place.run(copy(1), 1, fails)
    place.enqueue(copy(2))
    late = place.run(copy(other, generation=0, dispatches=1), other)
    assert isinstance(late, (Dead if other == 3 else Stale if fails else Duplicate))
    assert (message := place.row()) is not None
    assert message.body == body(2)
    is_conflict(place, place.run(place.relayed(copy(2)), 2), 2)
    assert place.row() is None


@pytest.mark.parametrize("does", ["replay", "discard"])
def test_what_is_in_the_way_of_a_replay_becomes_a_letter(place: Place, does: str) -> None:
    dead = place.run(copy(1), 1, Permanent("no"))
    assert isinstance(dead, Dead)
    place.enqueue(copy(2))
    if does == "replay":
        replay(place.db, place.store, "s", dead.letter_id, "op", Events())
    else:
        discard(place.db, place.store, "s", dead.letter_id, "op", Events(), "no need")
    [filed] = [letter for letter in place.letters() if letter.reason is Reason.conflict]
    assert (filed.job_id, filed.message.body, filed.status) == (own_id(2), body(2), "pending_review")
    if does == "replay":
        assert isinstance(place.run(place.relayed(copy(1)), 1), Completed)
    assert place.row() is None


@pytest.mark.parametrize("replayed", [False, True])
def test_what_is_in_the_way_of_a_job_that_moves_becomes_a_letter(place: Place, replayed: bool) -> None:
    """A job comes under its task's name, where another content of its id is already under the job's own."""
    moving = copy(1)
    moving = replace(moving, arrival=replace(moving.arrival, consumer="s/t"))
    unknown = Failure(Kind.unknown_task, "LookupError", "no such task")
    assert isinstance(record(place.db, place.store, moving, unknown, POLICY, LIMITS), Deferred)
    if replayed:
        with place.db.begin() as session:
            row = place.store.inbox.find(session, moving.key)
            assert row is not None
        dead = record(place.db, place.store, replace(moving, generation=row.generation), unknown, POLICY, LIMITS)
        assert isinstance(dead, Dead)
        replay(place.db, place.store, "s", dead.letter_id, "op", Events())
    assert isinstance(place.run(copy(2), 2, ValueError("once more")), Deferred)
    place.run(place.relayed(moving), 1)
    filed = [letter for letter in place.letters() if letter.reason is Reason.conflict]
    assert [(letter.job_id, letter.message.body) for letter in filed] == [(own_id(1), body(1))]
    assert isinstance(place.run(place.relayed(copy(2)), 2), Completed)
    assert place.row() is None
    others = [letter for letter in place.letters() if letter.reason is not Reason.conflict]
    assert [letter.lineage[-1]["event"] for letter in others] == (["superseded"] if replayed else [])
    assert all(letter.resolved_at for letter in others)


def test_a_row_in_the_way_of_a_claim(place: Place) -> None:
    """A job with external effects has its message kept by the inbox: its own."""
    place.enqueue(copy(2))
    external = replace(SPEC, external=External(limit=20.0))
    seen = []

    def call(args: Any, kwargs: Any, session: Any, job: Any) -> None:
        seen.append(place.row())

    assert isinstance(deliver(place.db, place.store, copy(1), external, (), {"a": 1}, call, LIMITS), Completed)
    assert [message and message.body for message in seen] == [body(1)]
    assert place.row() is None
    [filed] = place.letters()
    assert (filed.reason, filed.message.body) == (Reason.conflict, body(2))
