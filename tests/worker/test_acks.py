"""No outcome, no ack: also where a job asks Celery to acknowledge before it runs."""

from collections.abc import Callable
from uuid import uuid4

from celery import Celery

from tests.worker.running import State, Worker, until


def test_acks_late_switched_off_loses_nothing(
    start_worker: Callable[..., Worker], sender: Celery, state: State
) -> None:
    job_id = uuid4().hex
    first = start_worker(concurrency=1)
    sender.send_task("early", kwargs={"pause": 3.0}, task_id=job_id)
    until(
        lambda: state.sql(
            "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%ledger%'"
        )
    )
    first.kill()
    assert state.fence(job_id) is None
    start_worker(concurrency=1)
    until(lambda: state.settled(job_id), 40, "done by the second worker")
    assert state.effects(job_id) == 1
