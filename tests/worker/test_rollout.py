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
