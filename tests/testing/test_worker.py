"""The real worker and its fail points, on both brokers."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from celery import Celery

from harness.testing import POINTS, FailPointError, Fault, Worker, WorkerFailed, failpoints
from tests.worker.running import State


def worker_of(broker_url: str, database: str, folder: Path) -> Worker:
    return Worker(
        "tests.worker.app",
        folder,
        broker_url=broker_url,
        database_url=database,
        service="tests",
        environment={"BROKER_URL": broker_url},
    )


@pytest.fixture
def worker(broker_url: str, database: str, tmp_path: Path, state: State) -> Iterator[Worker]:
    with worker_of(broker_url, database, tmp_path / "worker") as worker:
        yield worker


@pytest.fixture
def state(database: str) -> Iterator[State]:
    state = State(database)
    yield state
    state.close()


@pytest.fixture
def sender(broker_url: str) -> Iterator[Celery]:
    with Celery("client", broker=broker_url, set_as_current=False) as app:
        app.conf.task_default_queue = "jobs"
        yield app


#: (point, fault, times)
FAULTS = [
    ("before_handler", Fault.raise_error, 2),
    ("after_handler", Fault.raise_error, 1),
    ("after_fence", Fault.lose_database, 1),
    ("before_commit", Fault.lose_database, 1),
    ("after_commit", Fault.lose_database, 1),
    ("after_handler", Fault.kill_process, 1),
]


def test_faults(worker: Worker, sender: Celery, state: State) -> None:
    armed = []
    for point, fault, times in FAULTS:
        job_id = uuid4().hex
        armed.append((job_id, worker.fail(point, fault, job_id=job_id, times=times)))
        sender.send_task("credit", task_id=job_id)
    for job_id, point in armed:
        assert worker.wait(job_id, "done", 60).ended, point
        assert point.fired == point.times, point
        assert state.effects(job_id) == 1, point

    dead = uuid4().hex
    sender.send_task("permanent", task_id=dead)
    assert worker.wait_dead(dead, reason="permanent", error="never work").attempts == 1
    with pytest.raises(
        WorkerFailed, match=rf"(?s)'{dead}' of tests/permanent: dead \(permanent\).*is not done.*log ends"
    ):
        worker.wait(dead, "done")
    with pytest.raises(WorkerFailed, match=r"(?s)no row of it.*not within 0\.2 s"):
        worker.wait("nobody's", seconds=0.2)

    # The whole worker, at whichever job comes first; then it is started again.
    job_id = uuid4().hex
    killed = worker.fail("before_commit", "kill_worker")
    sender.send_task("credit", task_id=job_id)
    worker.until(lambda: not worker.alive, what="the fail point kills the worker")
    assert killed.fired == 1
    assert state.effects(job_id) == 0
    worker.start()
    worker.wait(job_id, "done", 60)
    assert state.effects(job_id) == 1


def test_what_cannot_be_armed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no fail point 'nowhere'; there are .*after_commit"):
        failpoints.arm(tmp_path, "nowhere", "kill_worker")
    with pytest.raises(ValueError, match="raise_error is for before_handler and after_handler"):
        failpoints.arm(tmp_path, "after_commit", "raise_error")
    with pytest.raises(ValueError, match="no connection to PostgreSQL"):
        failpoints.arm(tmp_path, "before_ack", Fault.lose_database)
    with pytest.raises(ValueError, match="explode"):
        failpoints.arm(tmp_path, "before_ack", "explode")


def test_a_point_fires_as_often_as_it_was_armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, str(tmp_path))
    first = failpoints.arm(tmp_path, "before_handler", "raise_error", "a/b", times=2)
    other = failpoints.arm(tmp_path, "before_handler", "raise_error", "other")
    failpoints.hit("before_handler", "c")
    failpoints.hit("after_handler", "a/b")
    for count in (1, 2):
        with pytest.raises(FailPointError, match="before_handler of job a/b"):
            failpoints.hit("before_handler", "a/b")
        assert first.fired == count
    failpoints.hit("before_handler", "a/b")
    other.disarm()
    failpoints.hit("before_handler", "other")
    assert (first.fired, other.fired) == (2, 0)


def test_production_has_no_fail_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are wrapped around the product's functions in a test's worker only; elsewhere nothing is asked."""
    from harness.worker.task import JobTask

    monkeypatch.delenv(failpoints.VARIABLE, raising=False)
    before = JobTask.invoke
    failpoints.install()
    assert JobTask.invoke is before
    for module in (failpoints.__name__, *POINTS):
        for file in (Path(failpoints.__file__).parents[1] / "process").glob("*.py"):
            assert module not in file.read_text()


def test_a_worker_that_does_not_start(database: str, redis_url: str, tmp_path: Path) -> None:
    worker = worker_of(redis_url, database, tmp_path / "worker")
    worker.app = "no.such.app"
    with pytest.raises(WorkerFailed, match=r"(?s)has ended, with status \d.*No module named 'no'"):
        worker.start()
    assert not worker.alive
