"""A result backend that does not count a chord's parts (SQLAlchemy): Celery's own task polls it and sends the body."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import chain, chord, group

from harness.testing import failpoints
from tests.worker.canvas import Desk, new, replay
from tests.worker.running import State, Worker, until

on_one_broker = pytest.mark.parametrize("broker_url", [pytest.param("redis", marks=pytest.mark.redis)], indirect=True)


@pytest.fixture
def backend(database: str) -> str:
    return "db+" + database.replace("postgresql://", "postgresql+psycopg2://", 1)


@pytest.fixture
def desk(broker_url: str, backend: str, state: State, tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "points").mkdir()
    made = Desk(broker_url, backend, state, tmp_path / "points")
    yield made
    made.close()


@on_one_broker
def test_chords_and_results(
    desk: Desk, start_worker: Callable[..., Worker], backend: str, database: str, tmp_path: Path
) -> None:
    worker = start_worker(
        result_backend=backend,
        task_track_started=True,
        result_chord_retry_interval=0.3,
        concurrency=3,
        environment={"CANVAS": "1", failpoints.VARIABLE: str(desk.points)},
    )
    s, first, alone, dead, switch = desk.s, new(), new(), new(), tmp_path / "switch"
    desk.arm("after_commit", "process", first)
    line = chain(
        group(s("step", 1, task_id=first), s("plain_step", 2), s("step", 3, how="retry")), s("total"), s("step")
    )
    result = line.apply_async()
    desk.fired("after_commit")
    assert result.get(timeout=60) == 2 + 3 + 4 + 1
    assert len(desk.runs("total")) == 1

    desk.arm("before_store", "process", alone)
    assert s("step", 41, task_id=alone).apply_async().get(timeout=60) == 42
    for _ in range(2):
        # Not counted from 0: the record of the child's death, and a copy of a slow broker, are duplicates too.
        before = worker.text().count(f"duplicate job_id={alone}")
        s("step", 41, task_id=alone).apply_async()
        until(lambda n=before: worker.text().count(f"duplicate job_id={alone}") > n, 60, "a duplicate")
    until(lambda: desk.app.AsyncResult(alone).state == "SUCCESS", 20, "not STARTED for ever")
    assert desk.app.AsyncResult(alone).get(timeout=5) == 42

    body = s("total")
    body.set(link_error=[s("errback")])
    failed = chord([s("step", how="dead", switch=str(switch), task_id=dead), s("step", 5)], body).apply_async()
    desk.fails(failed)
    switch.touch()
    replay(database, dead, desk.state)
    until(lambda: desk.app.AsyncResult(dead).state == "SUCCESS", 60, "the header's replay")
    assert desk.app.AsyncResult(failed.id).state == "FAILURE"
    until(lambda: desk.runs("errback"), 30, "the body's errback")
    assert [run["got"] for run in desk.runs("errback")] == [failed.id]
    assert len(desk.runs("total")) == 1

    # The body can't be sent: Celery's task is no job, but the body is.
    unsent = chord([s("step", 1), s("step", 2)], s("total").set(expires="whenever", link_error=[s("errback")]))
    body = unsent.apply_async()
    letter = until(lambda: desk.state.letter(body.id), 60, "the body's letter")
    assert (letter.reason, letter.task, letter.payload["args"]) == ("broker", "total", [[2, 3]])
    assert letter.payload["parent"]["task"] == "celery.chord_unlock"
    desk.fails(body)
    until(lambda: [run for run in desk.runs("errback") if run["got"] == body.id], 30, "the body's errback")
    replay(database, body.id, desk.state)
    until(lambda: desk.runs("total", body.id), 60, "the body")
    assert [run["got"] for run in desk.runs("total", body.id)] == [[2, 3]]
