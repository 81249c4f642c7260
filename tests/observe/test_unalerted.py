"""A dead letter whose process could not report it is reported by a sweep: at least once, never for ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.core.events import Event, JobDead
from harness.observe.unalerted import tell, tell_forgotten
from tests.letters import SERVICE, Place

LATER = "UPDATE core.dead_letters SET updated_at = now() - interval '2 minutes'"


@pytest.fixture
def place(database: str) -> Iterator[Place]:
    made = Place(database)
    yield made
    made.database.dispose()


def sweep(place: Place) -> int:
    return tell_forgotten(place.database, place.store, SERVICE, place.events)


def test_a_forgotten_letter_is_reported_once(place: Place) -> None:
    letter_id = place.dead("a", tenant="t1", correlation_id="corr")
    assert (sweep(place), place.told) == (0, []), "its own process still has the time to"
    place.run(LATER)
    assert sweep(place) == 1
    [event] = place.told
    assert isinstance(event, JobDead)
    assert (event.letter_id, event.job_id, event.correlation_id) == (letter_id, "a", "corr")
    assert (event.reason, event.attempt, event.error_type, event.fingerprint) == ("exhausted", 5, "Timeout", "f1f2f3f4")
    assert place.letter(letter_id).alerted_at is not None
    assert sweep(place) == 0


def test_one_that_was_told_is_not_told_again_until_it_fails_again(place: Place) -> None:
    letter_id = place.dead("a")
    event = JobDead(
        service=SERVICE, consumer="c", job_id="a", reason=place.letter(letter_id).reason, letter_id=letter_id,
        error_type="E", message="", fingerprint="", traceback="",
    )  # fmt: skip
    tell(place.database, place.store, place.events, event)
    place.run(LATER)
    assert (place.told, sweep(place)) == ([event], 0)

    assert place.dead("a") == letter_id
    place.run(LATER)
    assert sweep(place) == 1


def test_what_is_settled_old_or_another_services_is_left_alone(place: Place) -> None:
    place.dead("other", service="shop")
    old = place.dead("old")
    discarded = place.dead("discarded")
    place.run(LATER)
    place.run("UPDATE core.dead_letters SET updated_at = now() - interval '2 days' WHERE id = :id", id=old)
    with place.database.begin() as session:
        place.store.letters.discard(session, discarded, actor="ann", reason="a test")
    place.run(LATER + " WHERE id = :id", id=discarded)
    assert sweep(place) == 0


def test_a_second_sweep_at_the_same_time_leaves_it_to_the_first(place: Place) -> None:
    place.dead("a")
    place.run(LATER)
    inner: list[int] = []

    def another(event: Event) -> None:
        inner.append(sweep(place))

    place.events.subscribe(another)
    assert (sweep(place), inner) == (1, [0])
