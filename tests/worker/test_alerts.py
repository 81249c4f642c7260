"""The process that gave a verdict dies before it can tell of it: its log line and Sentry event come all the same."""

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from celery import Celery

from harness.testing import failpoints
from tests.worker.running import State, Worker, until


def test_a_process_that_dies_right_after_the_verdict(
    start_worker: Callable[..., Worker],
    sender: Celery,
    state: State,
    tmp_path: Path,
) -> None:
    (points := tmp_path / "points").mkdir()
    worker = start_worker(environment={failpoints.VARIABLE: str(points)})
    job_id, told = uuid4().hex, uuid4().hex
    failpoints.arm(points, "verdict_after_commit", "kill_process", job_id)
    for each in (job_id, told):
        sender.send_task("permanent", task_id=each)
    until(lambda: all(state.letter(each) for each in (job_id, told)), 30, "both are dead")
    until(lambda: state.letter(told).alerted_at, 30, "the healthy process has told of its letter")
    until(lambda: state.sql("SELECT 1 FROM core.dead_letters WHERE alerted_at IS NULL"), 5, "the killed one has not")
    state.sql("UPDATE core.dead_letters SET updated_at = now() - interval '2 minutes'")
    assert not worker.has_logged(f"dead job_id={job_id}")
    sender.send_task("harness.alert")
    until(lambda: worker.has_logged(f"dead job_id={job_id}"), 30, "the sweep reports it")
    assert worker.text().count(f"dead job_id={told}") == 1
