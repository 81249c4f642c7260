"""Many letters at once."""

import threading

import pytest

from harness.core.events import Discarded, Events, Replayed
from harness.replay import ReasonMissing, Refused, Result, discard_many, replay_many
from harness.store.database import Database
from harness.store.processed_jobs import FenceState
from tests.letters import SERVICE, Place

MANY = 1000


def fill(place: Place, count: int = MANY) -> list[int]:
    """`count` dead jobs, in three statements; every second one has succeeded meanwhile."""
    first = place.dead("j0")
    columns = (
        "service, consumer, task, body, content_type, content_encoding, headers, properties, queue, reason, attempts,"
        " error_type, error_message, traceback, fingerprint, failures"
    )
    place.run(
        f"INSERT INTO core.dead_letters (job_id, {columns}) SELECT 'j' || n, {columns}"
        " FROM core.dead_letters, generate_series(1, :last) n",
        last=count - 1,
    )
    place.run(
        "INSERT INTO core.processed_jobs (job_id, consumer, state) SELECT 'j' || n, 'billing/pay', 'dead'"
        " FROM generate_series(1, :last) n",
        last=count - 1,
    )
    place.run("UPDATE core.processed_jobs SET state = 'done' WHERE substr(job_id, 2)::int % 2 = 1")
    ids = [row.id for row in place.run("SELECT id FROM core.dead_letters ORDER BY id")]
    assert ids[0] == first
    assert len(ids) == count
    return ids


def test_a_thousand_of_which_half_have_succeeded(place: Place) -> None:
    ids = fill(place)
    progress: list[object] = []
    counts = replay_many(
        place.database, place.store, SERVICE, ids, "ann", place.events, lambda _, what: progress.append(what)
    )

    assert counts == {"replayed": MANY // 2, "resolved": MANY // 2, "refused": 0, "failed": 0}
    assert progress.count(Result.resolved) == progress.count(Result.replayed) == MANY // 2
    assert place.one("SELECT count(*) FROM core.inbox") == MANY // 2
    assert place.one("SELECT count(*) FROM core.inbox WHERE substr(job_id, 2)::int % 2 = 1") == 0
    assert place.one("SELECT count(*) FROM core.dead_letters WHERE resolved_at IS NOT NULL") == MANY // 2
    assert place.one("SELECT count(*) FROM core.processed_jobs WHERE state = 'waiting'") == MANY // 2
    assert dict(map(tuple, place.run("SELECT action, count(*) FROM core.audit_log GROUP BY 1"))) == {
        "replayed": MANY // 2,
        "resolved": MANY // 2,
    }
    assert sum(isinstance(event, Replayed) for event in place.told) == MANY // 2

    assert replay_many(place.database, place.store, SERVICE, ids, "ann", place.events)["refused"] == MANY
    assert place.one("SELECT count(*) FROM core.inbox") == MANY // 2


def test_two_operators_with_the_same_thousand(place: Place) -> None:
    """In opposite order: no deadlock, and each job is given back once."""
    ids = fill(place, 200)
    counts: list[dict[str, int]] = []

    def operator(order: list[int]) -> None:
        database = Database(place.url)
        counts.append(replay_many(database, place.store, SERVICE, order, "ann", Events()))
        database.dispose()

    threads = [threading.Thread(target=operator, args=(order,)) for order in (ids, ids[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = {name: sum(count[name] for count in counts) for name in counts[0]}
    assert total == {"replayed": 100, "resolved": 100, "refused": 200, "failed": 0}
    assert place.one("SELECT max(replays) FROM core.dead_letters") == 1


def test_one_that_fails_does_not_stop_the_others(place: Place) -> None:
    ids = [place.dead("a"), place.dead("b"), place.dead("c"), 10**12]
    place.run("ALTER TABLE core.inbox ADD CONSTRAINT no_b CHECK (job_id <> 'b')")
    found: dict[int, Result | Exception] = {}
    counts = replay_many(place.database, place.store, SERVICE, ids * 2, "ann", place.events, found.__setitem__)
    assert counts == {"replayed": 2, "resolved": 0, "refused": 1, "failed": 1}
    assert "no_b" in str(found[ids[1]])
    assert isinstance(found[10**12], Refused)
    assert place.state("b") is FenceState.DEAD


def test_a_stale_connection_costs_nothing(place: Place) -> None:
    ids = [place.dead("a"), place.dead("b")]
    pid = place.one("SELECT pg_backend_pid()")
    other = Database(place.url)
    with other.engine.connect() as connection:
        connection.exec_driver_sql(f"SELECT pg_terminate_backend({pid}, 5000)")
    other.dispose()
    counts = replay_many(place.database, place.store, SERVICE, ids, "ann", place.events)
    assert counts["replayed"] == 2


def test_without_a_database_the_rest_is_not_tried(place: Place) -> None:
    nowhere = Database("postgresql://postgres@127.0.0.1:1/none")
    counts = replay_many(nowhere, place.store, SERVICE, range(1, 500), "ann", place.events)
    assert counts == {"replayed": 0, "resolved": 0, "refused": 0, "failed": 499}


def test_discard_many(place: Place) -> None:
    ids = [place.dead("a"), place.dead("b"), place.dead("c")]
    place.done("b")
    with pytest.raises(ReasonMissing):
        discard_many(place.database, place.store, SERVICE, ids, "ann", place.events, " ")
    counts = discard_many(place.database, place.store, SERVICE, ids, "ann", place.events, "paid by hand")
    assert counts == {"discarded": 2, "resolved": 1, "refused": 0, "failed": 0}
    assert place.told == [Discarded(ids[0], "ann", SERVICE), Discarded(ids[2], "ann", SERVICE)]
