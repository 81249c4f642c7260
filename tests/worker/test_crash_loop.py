"""A job that kills its worker each time, under a supervisor that starts the worker again each time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from celery import Celery

from tests.worker.queues import messages
from tests.worker.running import State, Worker, until


@contextmanager
def supervised(worker: Worker) -> Iterator[None]:
    """Start the worker again whenever it has died."""
    over = threading.Event()

    def supervise() -> None:
        while not over.wait(0.1):
            if not worker.alive:
                worker.kill()  # what it left behind
                worker.launch()

    thread = threading.Thread(target=supervise)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_job_that_kills_its_worker_ends_as_a_letter(
    start_worker: Callable[..., Worker], sender: Celery, state: State, tmp_path: Path, broker_url: str
) -> None:
    worker = start_worker(concurrency=1)
    killer, good, starts = uuid4().hex, uuid4().hex, tmp_path / "starts"
    with supervised(worker):
        sender.send_task("kills_worker", kwargs={"starts": str(starts)}, task_id=killer)
        until(lambda: starts.exists(), 20, "the job's first start")
        sender.send_task("credit", task_id=good)
        letter = until(lambda: state.letter(killer), 90, "the dead letter")
        until(lambda: state.settled(good), 30, "the worker's next job runs")
        until(lambda: messages(broker_url) == 0, 20, "the queue is drained")
    assert letter.reason == "crashed"
    assert "5 times" in letter.error_message
    assert starts.stat().st_size == 5
    assert (state.fence(killer), state.effects(killer)) == ("dead", 0)
    assert (state.fence(good), state.effects(good)) == ("done", 1)
    assert state.sql("SELECT 1 FROM core.inbox") == []
    assert len(state.letters()) == 1
