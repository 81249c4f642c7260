"""Killed before, during and after the call: never called twice without a person's word; each unknown has its row."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from celery import Celery

from harness.testing import failpoints
from tests.external.operator import operate
from tests.external.service import Service
from tests.worker.running import State, Worker, until

Calls = Callable[[str, str], int]
#: (point, fault, task) → how it ends: fence, effects in the ledger, calls of the other side.
DONE, QUIET, UNCALLED, CALLED = ("done", 1, 1), ("done", 0, 1), ("dead", 0, 0), ("dead", 0, 1)
CASES: dict[tuple[str, str, str], tuple[str, int, int]] = {
    ("before_claim", "kill_process", "charge"): DONE,
    ("claim_written", "kill_process", "charge"): DONE,
    ("claim_committed", "kill_process", "charge"): UNCALLED,
    ("after_handler", "kill_process", "charge"): CALLED,
    ("before_done", "kill_process", "charge"): CALLED,
    ("done_written", "kill_process", "charge"): CALLED,
    ("done_committed", "kill_process", "charge"): DONE,
    ("before_claim", "lose_database", "charge"): DONE,
    ("claim_written", "lose_database", "charge"): DONE,
    # The handler calls first, and its first statement then meets the broken connection.
    ("claim_committed", "lose_database", "charge"): CALLED,
    ("after_handler", "lose_database", "charge"): CALLED,
    ("before_done", "lose_database", "charge"): CALLED,
    ("done_written", "lose_database", "charge"): CALLED,
    ("done_committed", "lose_database", "charge"): DONE,
    # What has written nothing loses nothing with its connection.
    ("claim_committed", "lose_database", "notify"): QUIET,
    ("before_done", "lose_database", "notify"): QUIET,
    ("done_written", "lose_database", "notify"): QUIET,
    ("before_done", "kill_process", "notify"): CALLED,
}


def test_a_child_or_its_connection_is_lost_at_each_step(
    start: Callable[..., Worker], sender: Celery, state: State, service: Service, calls: Calls, tmp_path: Path
) -> None:
    points = tmp_path / "points"
    points.mkdir()
    worker = start(concurrency=2, environment={failpoints.VARIABLE: str(points)})
    jobs = {}
    for case in CASES:
        jobs[case] = uuid4().hex
        point, fault, task = case
        failpoints.arm(points, point, fault, jobs[case])
        sender.send_task(task, kwargs={"url": service.url}, task_id=jobs[case])
    for case, job_id in jobs.items():
        # A child that is killed is given up at once: long before its claim of 33 s is over.
        until(lambda job_id=job_id: state.settled(job_id), 60, f"{case} ends; see {worker.log}")
    assert not [*points.glob("*.armed")], "every fault has happened"
    seen = {case: (state.fence(job_id), state.effects(job_id), calls(case[2], job_id)) for case, job_id in jobs.items()}
    assert seen == CASES
    unknown = {job_id for case, job_id in jobs.items() if CASES[case][0] == "dead"}
    letters = state.letters()
    assert sorted(letter.job_id for letter in letters) == sorted(unknown), "one letter each"
    assert {letter.reason for letter in letters} == {"outcome_unknown"}
    assert {letter.payload["kwargs"]["url"] for letter in letters} == {service.url}, "a person sees what was called"


def test_the_whole_worker_is_killed_before_during_and_after_the_call(
    start: Callable[..., Worker], sender: Celery, state: State, service: Service, calls: Calls
) -> None:
    worker = start(concurrency=3)
    before, during, after, behind = (uuid4().hex for _ in range(4))

    def send(job_id: str, **kwargs: float) -> None:
        sender.send_task("brief", kwargs={"url": service.url, **kwargs}, task_id=job_id)

    send(after, after=60)
    until(lambda: calls("brief", after), 60, f"the first has called; see {worker.log}")
    with service.held():
        send(during)
        send(before, before=60)
        send(behind)  # waits behind the three
        until(lambda: calls("brief", during) and state.fence(before) == "claimed", 60, "the others are at work")
        assert [state.fence(job_id) for job_id in (before, during, after)] == ["claimed"] * 3
        worker.kill()
    worker.start()
    for job_id in (before, during, after, behind):
        until(lambda job_id=job_id: state.settled(job_id), 90, f"{job_id} ends; see {worker.log}")
    assert {job_id: state.fence(job_id) for job_id in (before, during, after)} == dict.fromkeys(
        (before, during, after), "dead"
    )
    assert [calls("brief", job_id) for job_id in (before, during, after, behind)] == [0, 1, 1, 1]
    assert (state.fence(behind), state.effects(behind)) == ("done", 1)
    letters = {letter.job_id: letter for letter in state.letters()}
    assert {job_id: letter.reason for job_id, letter in letters.items()} == dict.fromkeys(
        (before, during, after), "outcome_unknown"
    )
    # A person's word: one is replayed and calls again, under the same key; one is discarded.
    operate(worker, "replay", str(letters[during].id), "--note", "the provider has no such charge")
    operate(worker, "discard", str(letters[after].id), "--reason", "the provider has it")
    until(lambda: state.fence(during) == "done", 60, f"the replay is done; see {worker.log}")
    assert [calls("brief", job_id) for job_id in (before, during, after)] == [0, 2, 1]
    assert state.effects(during) == 1
    assert [letter.job_id for letter in state.letters() if letter.resolved_at is None] == [before]


@pytest.mark.parametrize("broker_url", [pytest.param("redis", marks=pytest.mark.redis)], indirect=True)
def test_a_worker_that_is_stopped_past_the_deadline_can_change_nothing(
    start: Callable[..., Worker], sender: Celery, state: State, service: Service, calls: Calls
) -> None:
    worker, job_id = start(concurrency=1), uuid4().hex
    assert worker.process is not None
    sender.send_task("stopped", kwargs={"url": service.url, "seconds": 4}, task_id=job_id)
    until(lambda: calls("stopped", job_id), 60, f"it has called; see {worker.log}")
    # Only the child that works, and the parent that would kill it at its limit; the relay goes on.
    [child] = {row.pid for row in state.sql(IN_TRANSACTION)}
    client = next(pid for pid in worker.children() if client_ports(pid) & child_ports(state, child))
    os.kill(worker.process.pid, signal.SIGSTOP)
    os.kill(client, signal.SIGSTOP)
    try:
        other = start(concurrency=1)
        until(lambda: state.letter(job_id), 60, f"the claim is given up; see {other.log}")
        assert state.letter(job_id).reason == "outcome_unknown"
        os.kill(client, signal.SIGCONT)
        until(lambda: state.letter(job_id).lineage, 60, "it has come to its end, and the letter says so")
    finally:
        os.kill(worker.process.pid, signal.SIGCONT)
    assert [event["event"] for event in state.letter(job_id).lineage] == ["came_late"]
    until(lambda: worker.has_logged("after its claim had been given up"), 30, "it is told loudly")
    assert (state.fence(job_id), state.effects(job_id), calls("stopped", job_id)) == ("dead", 0, 1)
    time.sleep(0.5)
    assert len(state.letters()) == 1


#: The handler's own: the relay has transactions as well.
IN_TRANSACTION = """
SELECT pid FROM pg_stat_activity
WHERE state = 'idle in transaction' AND datname = current_database() AND query LIKE 'INSERT INTO ledger%'
"""


def child_ports(state: State, backend: int) -> set[int]:
    """The client's port of a backend."""
    return {row[0] for row in state.sql("SELECT client_port FROM pg_stat_activity WHERE pid = :pid", pid=backend)}


def client_ports(pid: int) -> set[int]:
    """The local ports of a process's connections."""
    return {one.laddr.port for one in psutil.Process(pid).net_connections()}
