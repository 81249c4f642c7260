"""What becomes of a job, on real workers: each way to end, with what it leaves behind."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from celery import Celery

from tests.worker.running import State, Worker, until

DEAD = [
    ("fails", {}, "exhausted", 5, "ValueError"),
    ("credit", {"points": "many"}, "invalid_payload", 1, "InvalidPayload"),
    ("credit", {"points": -1}, "invalid_payload", 1, "InvalidPayload"),
    ("credit", {"wrong": 1}, "invalid_payload", 1, "InvalidPayload"),
    ("permanent", {}, "permanent", 1, "Permanent"),
    ("kills_child", {}, "crashed", 5, "WorkerLostError"),
    ("commits", {}, "permanent", 1, "TransactionRefused"),
    ("swallows", {}, "permanent", 1, "TransactionRefused"),
    ("goes_on", {}, "permanent", 1, "TransactionRefused"),
    ("soft", {}, "timed_out", 1, "SoftTimeLimitExceeded"),
    ("sleeps", {"where": "database"}, "timed_out", 5, "TimeLimitExceeded"),
    ("raises", {"what": "system_exit"}, "exhausted", 1, "SystemExit"),
    ("raises", {"what": "keyboard_interrupt"}, "exhausted", 1, "KeyboardInterrupt"),
    ("raises", {"what": "generator_exit"}, "exhausted", 1, "GeneratorExit"),
    ("raises", {"what": "recursion"}, "exhausted", 1, "RecursionError"),
    ("raises", {"what": "memory"}, "exhausted", 1, "MemoryError"),
    ("raises", {"what": "speechless"}, "exhausted", 1, "Speechless"),
    ("raises", {"what": "reject"}, "permanent", 1, "Reject"),
    ("raises", {"what": "ignore"}, "permanent", 1, "Ignore"),
    ("raises", {"what": "group"}, "exhausted", 1, "ExceptionGroup"),
    ("raises", {"what": "unpicklable"}, "exhausted", 1, "Local"),
]
DONE = [
    ("credit", {"points": 7}),
    ("fails_until", {"good": 3}),
    ("kills_child", {"times": 1}),
    ("later", {}),
    ("celery_retry", {}),
    ("returns_unserialisable", {}),
    ("kills_connection", {"times": 2}),
    ("shared", {"n": 1}),
]


@pytest.mark.usefixtures("worker")
def test_every_way_to_end(sender: Celery, state: State) -> None:
    dead = [(uuid4().hex, *case) for case in DEAD]
    done = [(uuid4().hex, *case) for case in DONE]
    for job_id, task, kwargs, *_ in [*dead, *done]:
        sender.send_task(task, kwargs=kwargs, task_id=job_id)
    for job_id, task, kwargs, *_ in [*dead, *done]:
        until(lambda job_id=job_id: state.settled(job_id), 120, f"{task} {kwargs} settled")
    for job_id, task, kwargs, reason, attempts, error in dead:
        letter = state.letter(job_id)
        assert letter is not None, (task, kwargs)
        assert (letter.reason, letter.attempts) == (reason, attempts), (task, kwargs)
        assert error in letter.error_type, (task, kwargs)
        if task in ("swallows", "goes_on"):
            assert "What it swallowed: DivisionByZero: division by zero" in letter.error_message
        assert len(letter.failures) == attempts, (task, kwargs)
        assert all(failure["at"] and failure["worker"] for failure in letter.failures)
        assert state.effects(job_id) == 0, (task, kwargs)
        assert letter.correlation_id == job_id
    for job_id, task, kwargs in done:
        assert state.fence(job_id) == "done", (task, kwargs)
        assert state.effects(job_id) == 1, (task, kwargs)
        assert state.letter(job_id) is None, (task, kwargs)


@pytest.mark.usefixtures("worker")
def test_a_redelivery_after_the_verdict_runs_nothing(sender: Celery, state: State) -> None:
    job_id = uuid4().hex
    sender.send_task("fails", task_id=job_id)
    until(lambda: state.letter(job_id), 30, "dead letter")
    sender.send_task("fails", task_id=job_id)
    marker = uuid4().hex
    sender.send_task("credit", task_id=marker)
    until(lambda: state.settled(marker))
    letter = state.letter(job_id)
    assert letter.attempts == 5
    assert len(letter.failures) == 5
    assert state.inbox(job_id) is None


@pytest.mark.usefixtures("worker")
def test_an_eta_waits_in_the_inbox(sender: Celery, state: State) -> None:
    job_id = uuid4().hex
    sender.send_task("credit", task_id=job_id, countdown=2)
    row = until(lambda: state.inbox(job_id), 20, "waits in the inbox")
    assert row.attempts == 0
    assert state.effects(job_id) == 0
    until(lambda: state.settled(job_id), 20)
    assert state.effects(job_id) == 1


def test_two_services_keep_apart(start_worker: Callable[..., Worker], sender: Celery, state: State) -> None:
    job_id = uuid4().hex
    for service in ("one", "two"):
        start_worker(service=service, concurrency=1, task_default_queue=service)
        sender.send_task("fails_until", kwargs={"good": 2}, task_id=job_id, queue=service)
    until(lambda: state.effects(job_id) == 2, 30, "each service's effect")
    rows = state.sql("SELECT consumer, state FROM core.processed_jobs WHERE job_id = :id ORDER BY 1", id=job_id)
    assert [tuple(row) for row in rows] == [("one/fails_until", "done"), ("two/fails_until", "done")]


@pytest.mark.usefixtures("worker")
def test_plain_tasks_stay_plain(sender: Celery, state: State) -> None:
    marker = uuid4().hex
    sender.send_task("plain", args=[1], task_id=uuid4().hex)
    sender.send_task("credit", task_id=marker)
    until(lambda: state.settled(marker))
    assert state.sql("SELECT count(*) FROM core.processed_jobs")[0][0] == 1
