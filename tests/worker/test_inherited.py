"""What a process that is forked late, when its worker is connected, has of its worker; what outlives a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from celery import Celery

from harness.worker import forked
from tests.worker.running import ROOT, State, Worker, until

Start = Callable[..., Worker]


def sockets(pid: int) -> set[tuple[object, object]]:
    """The connections that a process has in hand, each by both of its ends."""
    return {(one.laddr, one.raddr) for one in psutil.Process(pid).net_connections("inet") if one.raddr}


def parent(worker: Worker) -> psutil.Process:
    assert worker.process is not None
    return psutil.Process(worker.process.pid)


def publisher(worker: Worker, database: str) -> psutil.Process | None:
    """The relay: of all that runs beside the pool, what has the database open."""
    port = int(database.rpartition(":")[2].partition("/")[0])
    for child in parent(worker).children():
        if any(end.port == port for _, end in sockets(child.pid) if hasattr(end, "port")):
            return child
    return None


def replace_pool(sender: Celery, state: State, worker: Worker) -> None:
    """Each process of the pool ends after one job, and another one is forked."""
    before = {child.pid for child in parent(worker).children()}
    for n in range(4):
        sender.send_task("credit", task_id=f"first {n}")
    until(lambda: all(state.settled(f"first {n}") for n in range(4)), 60)
    until(lambda: len({child.pid for child in parent(worker).children()} - before) >= 2, 60, "new processes")


@contextmanager
def left(state: State, job: str) -> Iterator[None]:
    """With the process that the job has left behind; it is ended."""
    until(lambda: state.settled(job), 60)
    pid = int(state.sql("SELECT note FROM ledger WHERE job_id = :id", id=job)[0][0])
    try:
        assert psutil.pid_exists(pid)
        yield
        assert psutil.pid_exists(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_process_forked_late_has_none_of_its_workers_connections(
    start_worker: Start, sender: Celery, state: State, database: str
) -> None:
    worker = start_worker(options=["--max-tasks-per-child", "1"])
    replace_pool(sender, state, worker)
    first = until(lambda: publisher(worker, database), 60, "the relay")
    first.kill()
    until(lambda: (now := publisher(worker, database)) is not None and now != first, 60, "another relay")
    sender.control.pool_grow(1)
    until(lambda: len(parent(worker).children()) == 4, 60, "a process more")
    time.sleep(0.5)
    own = sockets(parent(worker).pid)
    assert own
    for child in parent(worker).children():
        assert sockets(child.pid) & own == set(), child
    sender.send_task("credit", task_id="last")
    until(lambda: state.settled("last"), 60)
    assert sockets(parent(worker).pid) == own, "and the worker has lost none of them"


def test_a_process_that_a_handler_leaves_behind_does_not_keep_the_jobs_of_a_dead_worker(
    start_worker: Start, sender: Celery, state: State
) -> None:
    """The broker gives them to another worker when the dead one's connection is closed, in every process."""
    worker = start_worker(options=["--max-tasks-per-child", "1"])
    replace_pool(sender, state, worker)
    sender.send_task("leaves_process", (120,), task_id="leaves")
    with left(state, "leaves"):
        sender.send_task("credit", kwargs={"pause": 60}, task_id="at work")
        until(lambda: state.sql("SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"), 60)
        parent(worker).kill()
        second = start_worker()
        until(lambda: state.sql("SELECT 1 FROM core.inbox WHERE job_id = 'at work'"), 20, "it is delivered again")
        second.kill()


def test_a_worker_without_processes_does_not_end_with_its_parent() -> None:
    """Celery's pool `solo` calls the worker itself a process of the pool."""
    pid = os.fork()
    if not pid:
        forked.begin()
        forked.end_with_worker()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_nothing_outlives_a_worker_that_is_killed(
    start_worker: Start, sender: Celery, state: State, tmp_path: Path
) -> None:
    """Beat would go on for ever, beside that of the next worker; a process of the pool would end its job."""
    worker = start_worker(options=["-B", "-s", str(tmp_path / "schedule")])
    sender.send_task("credit", kwargs={"pause": 120}, task_id="in Python")
    sender.send_task("sleeps", ("database",), task_id="in SQL", time_limit=120)
    until(lambda: worker.has_logged("beat: Starting"), 60)
    busy = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%ledger%' OR query LIKE '%pg_sleep(60)%'"
    until(lambda: state.sql(busy + " AND pid <> pg_backend_pid()")[0][0] >= 2, 60)
    children = parent(worker).children(recursive=True)
    assert len(children) == 4, "the pool's, the relay, beat"
    parent(worker).kill()
    _, alive = psutil.wait_procs(children, 10)
    try:
        assert alive == []
    finally:
        for child in alive:
            child.kill()


def test_a_process_that_a_handler_leaves_behind_does_not_keep_a_transaction_open(
    start_worker: Start, sender: Celery, state: State
) -> None:
    """It has the connection of a later job in its hand; when that one's process dies, its fence must be free."""
    start_worker(concurrency=1)
    sender.send_task("leaves_process", (120,), task_id="leaves")
    with left(state, "leaves"):
        sender.send_task("kills_child", (1,), task_id="dies")
        until(lambda: state.settled("dies"), 30)
        assert (state.effects("dies"), state.fence("dies")) == (1, "done")


FORKED_BY_A_THREAD = """
import os, signal, sys, threading, time
from harness.worker import forked

def fork():
    if os.fork() == 0:
        forked.end_with_worker(signal.SIGKILL)
        time.sleep(1)
        os._exit(7)

forked.begin()
forked.end_with_worker()
if sys.argv[1] == "thread":
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
else:
    fork()
_, status = os.wait()
print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("by", ["thread", "main"])
def test_a_process_does_not_end_with_the_thread_that_has_forked_it(by: str) -> None:
    """As the supervisor of a pool without an event loop does: to the system, that thread is the parent."""
    command = [sys.executable, "-c", FORKED_BY_A_THREAD, by]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "7\n", done.stderr
