"""A worker is told to end when a process has been given a job, and has not said yet that it has it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import psutil
from celery import Celery

from tests.worker.queues import messages
from tests.worker.running import State, Worker, until


def given(start_worker: Callable[..., Worker], sender: Celery, job: str, task: str, **kwargs: object) -> Worker:
    """A worker that has been told to end, whose only process is stopped and has a job that it has not read."""
    worker = start_worker(concurrency=1, harness_relay="off")
    _pool(worker, signal.SIGSTOP)
    sender.send_task(task, kwargs=kwargs, task_id=job)
    until(lambda: worker.has_logged(f"[{job}] received"), 60)
    time.sleep(0.3)
    worker.terminate()
    until(lambda: worker.has_logged("Warm shutdown"), 60)
    return worker


def _pool(worker: Worker, number: int) -> None:
    assert worker.process is not None
    for child in psutil.Process(worker.process.pid).children():
        child.send_signal(number)


def test_what_it_accepts_at_once_is_ended_and_the_worker_as_well(
    start_worker: Callable[..., Worker], sender: Celery, state: State, broker_url: str
) -> None:
    """Celery would forget it, run it nevertheless, end half a minute later, and give the message back."""
    worker = given(start_worker, sender, "just given", "credit")
    time.sleep(0.5)
    _pool(worker, signal.SIGCONT)
    assert worker.process is not None
    worker.process.wait(25)
    assert (state.effects("just given"), state.fence("just given")) == (1, "done")
    assert messages(broker_url) == 0, "it is acknowledged"


def test_what_it_never_reads_goes_back_and_no_try_is_spent(
    start_worker: Callable[..., Worker], sender: Celery, state: State
) -> None:
    worker = given(start_worker, sender, "unread", "credit")
    time.sleep(3)
    assert state.fence("unread") is None
    worker.kill()
    second = start_worker()
    until(lambda: state.settled("unread"), 60)
    assert second.has_logged("completed job_id=unread task=credit attempt=1")
    assert (state.effects("unread"), state.letters()) == (1, [])
