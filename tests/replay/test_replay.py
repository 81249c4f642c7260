"""One letter: replayed, resolved, refused, discarded."""

import threading
from contextlib import ExitStack

import pytest
from sqlalchemy.exc import DBAPIError

from harness.core.events import Discarded, Replayed
from harness.process.copy import Copy
from harness.process.spec import Limits
from harness.process.work import work
from harness.replay import (
    AlreadyReplayed,
    JobBusy,
    LetterChanged,
    LetterClosed,
    NoSuchLetter,
    ReasonMissing,
    Refused,
    Result,
    discard,
    replay,
)
from harness.store.processed_jobs import FenceState
from tests.letters import SERVICE, Place, arrival


def again(place: Place, letter_id: int, **more: object) -> Result:
    return replay(place.database, place.store, SERVICE, letter_id, "ann", place.events, **more)  # type: ignore[arg-type]


def close(place: Place, letter_id: int, reason: str = "not needed", **more: object) -> Result:
    return discard(place.database, place.store, SERVICE, letter_id, "ann", place.events, reason, **more)  # type: ignore[arg-type]


def test_dead_job_goes_back_to_the_inbox_with_its_message(place: Place) -> None:
    letter_id = place.dead("a", ordering_key="k", sequence=41, tenant="t1", priority=3, correlation_id="c")
    before = place.letter(letter_id)

    assert again(place, letter_id, reason="provider is back") is Result.replayed

    row, letter = place.waiting("a"), place.letter(letter_id)
    assert row.message == before.message
    assert (row.sequence, row.ordering_key, row.tenant, row.priority, row.correlation_id) == (41, "k", "t1", 3, "c")
    assert (row.attempts, row.deliveries, row.failures, row.letter_id) == (0, 0, [], letter_id)
    assert row.generation > 0
    assert place.state("a") is FenceState.WAITING
    assert (letter.status, letter.replays, letter.reviewer, letter.resolved_at) == ("replayed", 1, "ann", None)
    assert [(e["event"], e["actor"], e["replay"]) for e in letter.lineage] == [("replayed", "ann", 1)]
    assert place.audit(letter_id) == [("replayed", "ann", "provider is back")]
    assert place.told == [Replayed(letter_id, "ann", SERVICE)]


def test_job_that_has_succeeded_is_resolved_and_not_sent(place: Place) -> None:
    letter_id = place.dead("a")
    place.done("a")

    assert again(place, letter_id) is Result.resolved

    assert place.waiting("a") is None
    assert place.state("a") is FenceState.DONE
    letter = place.letter(letter_id)
    assert letter.resolved_at is not None
    assert (letter.status, letter.replays) == ("replayed", 0)
    assert place.audit(letter_id) == [("resolved", "ann", None)]
    assert place.told == []


def test_a_fence_that_is_missing_is_put_there(place: Place) -> None:
    letter_id = place.dead("a")
    place.run("DELETE FROM core.processed_jobs")
    assert again(place, letter_id) is Result.replayed
    assert place.state("a") is FenceState.WAITING


def test_a_waiting_job_that_lost_its_inbox_row_is_given_back(place: Place) -> None:
    letter_id = place.dead("a")
    again(place, letter_id)
    place.run("DELETE FROM core.inbox")
    assert again(place, letter_id) is Result.replayed
    assert place.waiting("a").letter_id == letter_id


def test_an_inbox_row_of_a_dead_job_does_not_hide_the_replay(place: Place) -> None:
    """A copy that found the fence busy may have left one, with no say."""
    letter_id = place.dead("a")
    with place.database.begin() as session:
        place.store.inbox.add(session, arrival("a"), deliveries=3)
    again(place, letter_id)
    row = place.waiting("a")
    assert (row.letter_id, row.deliveries) == (letter_id, 0)
    assert row.generation > 0


def test_twice_is_refused(place: Place) -> None:
    letter_id = place.dead("a")
    again(place, letter_id)
    generation = place.waiting("a").generation
    with pytest.raises(AlreadyReplayed, match="inbox"):
        again(place, letter_id)
    with pytest.raises(AlreadyReplayed):
        close(place, letter_id)
    assert place.waiting("a").generation == generation
    assert place.letter(letter_id).replays == 1
    assert len(place.audit(letter_id)) == 1


def test_closed_letters_and_strangers_are_refused(place: Place) -> None:
    letter_id = place.dead("a")
    close(place, letter_id)
    with pytest.raises(LetterClosed, match="discarded"):
        again(place, letter_id)
    with pytest.raises(LetterClosed):
        close(place, letter_id)
    other = place.dead("b", service="shop")
    with pytest.raises(NoSuchLetter):
        again(place, other)
    with pytest.raises(NoSuchLetter):
        again(place, 10**12)
    assert place.state("b", service="shop") is FenceState.DEAD
    assert place.letter(other, "shop").status == "pending_review"


def test_a_closed_letter_says_so_even_if_the_job_has_another_life(place: Place) -> None:
    letter_id = place.dead("a")
    again(place, letter_id)
    place.done("a")
    with place.database.begin() as session:
        place.store.letters.resolve(session, place.letter(letter_id).key)
    place.fence("a", FenceState.WAITING)
    with pytest.raises(LetterClosed, match="succeeded"):
        again(place, letter_id)


def test_failing_again_returns_the_same_letter_with_its_history(place: Place) -> None:
    letter_id = place.dead("a")
    again(place, letter_id)
    place.run("DELETE FROM core.inbox")
    assert place.dead("a", error="Refused") == letter_id
    letter = place.letter(letter_id)
    assert (letter.status, letter.replays, letter.error_type) == ("pending_review", 1, "Refused")
    assert [failure["error_type"] for failure in letter.failures] == ["Timeout", "Refused"]
    assert [event["event"] for event in letter.lineage] == ["replayed", "failed_again"]
    assert again(place, letter_id) is Result.replayed


def test_seen_guards_against_a_letter_that_moved_on(place: Place) -> None:
    letter_id = place.dead("a")
    again(place, letter_id, seen=0)
    place.run("DELETE FROM core.inbox")
    place.dead("a")
    with pytest.raises(LetterChanged):
        again(place, letter_id, seen=0)
    assert again(place, letter_id, seen=1) is Result.replayed


def test_discard(place: Place) -> None:
    letter_id = place.dead("a")
    assert close(place, letter_id, "  paid by hand ") is Result.discarded
    letter = place.letter(letter_id)
    assert (letter.status, letter.discard_reason, letter.reviewer) == ("discarded", "paid by hand", "ann")
    assert letter.resolved_at is not None
    assert place.state("a") is FenceState.DEAD
    assert place.audit(letter_id) == [("discarded", "ann", "paid by hand")]
    assert place.told == [Discarded(letter_id, "ann", SERVICE)]


@pytest.mark.parametrize("reason", ["", " ", "\n\t", "\u00a0"])
def test_discard_needs_a_reason(place: Place, reason: str) -> None:
    letter_id = place.dead("a")
    with pytest.raises(ReasonMissing, match="why"):
        close(place, letter_id, reason)
    assert place.letter(letter_id).status == "pending_review"


def test_discard_of_a_job_that_has_succeeded_resolves(place: Place) -> None:
    letter_id = place.dead("a")
    place.done("a")
    assert close(place, letter_id) is Result.resolved
    assert place.letter(letter_id).status == "replayed"


def test_discarding_a_letter_without_a_fence_keeps_late_copies_out(place: Place) -> None:
    letter_id = place.dead("a")
    place.run("DELETE FROM core.processed_jobs")
    close(place, letter_id)
    assert place.state("a") is FenceState.DEAD


def test_nothing_stays_when_the_audit_row_cannot_be_written(place: Place) -> None:
    letter_id = place.dead("a")
    place.run("ALTER TABLE core.audit_log ADD CONSTRAINT full_ CHECK (false) NOT VALID")
    with pytest.raises(DBAPIError):
        again(place, letter_id)
    assert place.state("a") is FenceState.DEAD
    assert place.waiting("a") is None
    assert place.letter(letter_id).replays == 0
    assert place.told == []


WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


class AtWork:
    """A work transaction in another thread, stopped inside the handler."""

    def __init__(self, place: Place, job_id: str, generation: int | None) -> None:
        self.place, self.copy = place, Copy(arrival(job_id), generation=generation, dispatches=1)
        self.inside, self.go_on, self.fail = threading.Event(), threading.Event(), False
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with ExitStack() as stack:
            if self.fail:
                stack.enter_context(pytest.raises(Exception, match="boom"))
            work(self.place.database, self.place.store, self.copy, self._handler, Limits())

    def _handler(self, session: object, job: object) -> None:
        self.inside.set()
        assert self.go_on.wait(20)
        if self.fail:
            raise RuntimeError("boom")

    def __enter__(self) -> "AtWork":
        self.thread.start()
        assert self.inside.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self.thread.join(20)
        assert not self.thread.is_alive()


def waits_for_lock(place: Place) -> None:
    """Until some backend of this database waits for a lock."""
    for _ in range(2000):
        if place.one(WAITING):
            return
        threading.Event().wait(0.005)
    raise AssertionError("nobody waits for a lock")


@pytest.mark.parametrize("fails", [False, True])
def test_replay_waits_for_a_job_at_work_and_goes_by_what_became_of_it(place: Place, fails: bool) -> None:
    letter_id = place.dead("a")
    again(place, letter_id)
    found: list[object] = []

    def attempt() -> None:
        try:
            found.append(again(place, letter_id, wait_ms=20_000))
        except Refused as error:
            found.append(type(error))

    at_work = AtWork(place, "a", place.waiting("a").generation)
    at_work.fail = fails
    with at_work:
        thread = threading.Thread(target=attempt)
        thread.start()
        waits_for_lock(place)
    thread.join(20)
    if fails:
        assert found == [AlreadyReplayed]
        assert place.waiting("a") is not None
    else:
        assert found == [LetterClosed]
        assert place.waiting("a") is None
        assert place.letter(letter_id).resolved_at is not None
    assert place.letter(letter_id).replays == 1


def test_replay_does_not_wait_for_ever_for_a_job_at_work(place: Place) -> None:
    letter_id = place.dead("a")
    again(place, letter_id)
    with AtWork(place, "a", place.waiting("a").generation), pytest.raises(JobBusy, match="at work"):
        again(place, letter_id, wait_ms=50)
    assert place.letter(letter_id).resolved_at is not None


def test_first_delivery_at_work_while_its_old_letter_has_no_fence(place: Place) -> None:
    """The fence does not exist yet for others: the replay waits for the insert all the same."""
    letter_id = place.dead("a")
    place.run("DELETE FROM core.processed_jobs")
    with AtWork(place, "a", None), pytest.raises(JobBusy):
        again(place, letter_id, wait_ms=50)
    assert again(place, letter_id) is Result.resolved
    assert place.waiting("a") is None


def test_many_at_once_give_the_job_back_once(place: Place) -> None:
    letter_id = place.dead("a")
    results: list[object] = []
    start = threading.Barrier(8)

    def attempt() -> None:
        start.wait()
        try:
            results.append(again(place, letter_id))
        except AlreadyReplayed:
            results.append(None)

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, results)) == ["None"] * 7 + ["replayed"]
    assert place.letter(letter_id).replays == 1
    assert len(place.audit(letter_id)) == 1
