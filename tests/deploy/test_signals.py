"""What becomes of a job when its worker is stopped, in each of the ways that docs/howto/deploy.md names."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.worker.running import State, Worker, client, until


@pytest.fixture
def state(database: str) -> Iterator[State]:
    made = State(database)
    yield made
    made.close()


@pytest.fixture
def start(rabbitmq_url: str, database: str, state: State, tmp_path: Path) -> Iterator[Callable[[], Worker]]:
    started: list[Worker] = []

    def begin() -> Worker:
        log = tmp_path / f"worker{len(started)}.log"
        started.append(Worker(rabbitmq_url, database, log, concurrency=1, relay="off"))
        return started[-1].start()

    yield begin
    for worker in started:
        worker.stop()


def at_work(state: State, rabbitmq_url: str, start: Callable[[], Worker]) -> tuple[str, Worker]:
    """A worker whose job has written its effect and takes its time."""
    job_id, worker = uuid4().hex, start()
    with client(rabbitmq_url) as sender:
        sender.send_task("credit", task_id=job_id, kwargs={"pause": 4})
    seen = (
        "SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE c.relname = 'ledger' AND l.mode ~ '^Row'"
    )
    until(lambda: state.sql(seen), 120, "the job is at work")
    return job_id, worker


def ended(worker: Worker) -> int:
    assert worker.process is not None
    return worker.process.wait(120)


def test_sigterm_lets_the_job_end_and_a_second_one_changes_nothing(
    state: State, rabbitmq_url: str, start: Callable[[], Worker]
) -> None:
    job_id, worker = at_work(state, rabbitmq_url, start)
    worker.terminate()
    until(lambda: worker.has_logged("Warm shutdown"), 60)
    worker.terminate()
    assert ended(worker) == 0
    assert (state.fence(job_id), state.effects(job_id)) == ("done", 1)


@pytest.mark.parametrize("how", ["SIGQUIT to the worker", "SIGTERM to all its processes"])
def test_a_job_that_is_broken_off_is_taken_by_another_worker(
    state: State, rabbitmq_url: str, start: Callable[[], Worker], how: str
) -> None:
    job_id, worker = at_work(state, rabbitmq_url, start)
    assert worker.process is not None
    if how.startswith("SIGQUIT"):
        worker.process.send_signal(signal.SIGQUIT)
    else:
        os.killpg(worker.process.pid, signal.SIGTERM)
    ended(worker)
    assert (state.fence(job_id), state.effects(job_id)) == (None, 0)
    start()
    until(lambda: state.settled(job_id), 120)
    assert (state.fence(job_id), state.effects(job_id)) == ("done", 1)
    assert state.sql("SELECT note FROM ledger WHERE job_id = :id", id=job_id) == [("1",)]
