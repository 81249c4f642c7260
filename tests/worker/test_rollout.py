"""A roll-out: messages of a task that only the new release knows reach a worker of the old one first."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from celery import Celery

from tests.worker.running import State, Worker, until


def test_an_unknown_task_waits_for_the_worker_that_knows_it(
    start_worker: Callable[..., Worker], sender: Celery, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = uuid4().hex
    old = start_worker(concurrency=1)
    sender.send_task("new", task_id=job_id)
    row = until(lambda: state.inbox(job_id), 20, "waits in the inbox")
    assert row.failures[0]["kind"] == "unknown_task"
    old.stop()
    monkeypatch.setenv("TEST_NEW_RELEASE", "1")
    start_worker(concurrency=1)
    # A second copy comes straight to the new release, under the task's own consumer name.
    sender.send_task("new", task_id=job_id)
    until(lambda: state.effects(job_id) == 1, 20)
    state.sql("UPDATE core.inbox SET available_at = now()")
    until(lambda: state.inbox(job_id) is None, 30, "the waiting copy is a duplicate")
    assert state.effects(job_id) == 1
    fences = state.sql("SELECT consumer, state FROM core.processed_jobs WHERE job_id = :id", id=job_id)
    assert [tuple(fence) for fence in fences] == [("tests/new-stable-name", "done")]


@pytest.mark.parametrize("broker_url", [pytest.param("redis", marks=pytest.mark.redis)], indirect=True)
def test_an_unknown_task_that_turns_out_to_be_no_job_is_handed_over_once(
    start_worker: Callable[..., Worker], sender: Celery, state: State
) -> None:
    """It takes no row out of the inbox: its message would be sent again after each lease, for ever."""
    job_id = uuid4().hex
    old = start_worker(concurrency=1)
    sender.send_task("plain_step", task_id=job_id)
    until(lambda: state.inbox(job_id), 60, "waits in the inbox")
    old.stop()
    new = start_worker(concurrency=1, harness_lease=1.0, environment={"CANVAS": "1"})
    state.sql("UPDATE core.inbox SET available_at = now()")
    until(lambda: state.effects(job_id), 60, "it runs")
    until(lambda: state.inbox(job_id) is None, 30, "its row goes")
    assert state.fence(job_id) is None
    sender.send_task("credit", task_id=uuid4().hex, countdown=2)
    until(lambda: new.has_logged("completed job_id="), 60, "longer than a lease")
    assert state.effects(job_id) == 1
    assert state.letters() == []
