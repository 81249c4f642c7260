"""Way 13: pools other than prefork, and other ways to start a worker."""

import os
import signal
import subprocess
import sys

from tests.failures.case import Case, Send
from tests.failures.place import Place
from tests.worker.running import ROOT, until

_MIX = [Send("credit", {"pause": 0.2}, 6), Send("once", {"note": "{file}"})]


def multi(place: Place) -> None:
    """`celery multi start`, and its end by the pid file."""
    worker = place.make_worker(place.case)
    pid = place.folder / "multi.pid"
    command = [sys.executable, "-m", "celery", "-A", worker.app, "multi"]
    where = [f"--pidfile={pid}", f"--logfile={place.folder}/multi.log", "-l", "INFO", "-c", "2"]
    subprocess.run(
        [*command, "start", f"m{id(worker)}@test", *where],
        cwd=ROOT,
        env=worker.environment,
        check=True,
        timeout=300,
        stdout=subprocess.DEVNULL,
    )
    until(pid.exists, 150, "celery multi has started it")


def end_multi(place: Place) -> None:
    pid = place.folder / "multi.pid"
    until(pid.exists, 30, "celery multi has started it")
    number = int(pid.read_text())
    os.kill(number, signal.SIGTERM)
    until(lambda: not os.path.exists(f"/proc/{number}"), 30, "it has ended")


_START_WORKER = """
import sys, time
from celery.contrib.testing.worker import start_worker
from tests.failures.app import app
with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=20):
    print("started", flush=True)
    sys.stdin.read()
"""


def start_worker(place: Place) -> None:
    """A test's worker: celery.contrib.testing, in a thread of the test's process."""
    worker = place.make_worker(place.case)
    place.extra["log"] = log = open(place.folder / "start_worker.log", "wb")  # noqa: SIM115
    place.extra["process"] = subprocess.Popen(
        [sys.executable, "-c", _START_WORKER],
        cwd=ROOT,
        env=worker.environment,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
    )


def end_start_worker(place: Place) -> None:
    process = place.extra["process"]
    process.stdin.close()
    try:
        process.wait(40)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
    place.extra["log"].close()


def refused(place: Place) -> None:
    """The worker must end by itself and say why."""
    worker = place.make_worker(place.case)
    process = worker.launch()
    place.worker = worker
    until(lambda: process.poll() is not None or worker.has_logged(" ready."), 150, "it has ended or is ready")
    if place.harness:
        assert process.poll() is not None, "a pool that is not proven is not refused"
        assert worker.has_logged("The pool is ownpool"), "it does not say why"


CASES = [
    Case(
        "threads pool",
        13,
        "jobs, one of which fails once",
        _MIX,
        7,
        options=["--pool=threads"],
        settings={"harness_pool_size": 2},
    ),
    Case(
        "threads pool, pool_size 1", 13, "more threads than connections", _MIX, 7, options=["--pool=threads", "-c", "8"]
    ),
    Case("solo pool", 13, "jobs, one of which fails once", _MIX, 7, options=["--pool=solo"]),
    Case(
        "solo pool, hung job",
        13,
        "no process that a hard limit could end",
        [Send("credit", {"pause": 3}), Send()],
        2,
        options=["--pool=solo"],
    ),
    Case(
        "pool of one's own",
        13,
        "a pool that is not proven, as gevent's: the worker refuses to start, and says why",
        [],
        0,
        jobs=0,
        starts=True,
        wrong=refused,
        options=["--pool=custom"],
        environment={"CELERY_CUSTOM_WORKER_POOL": "tests.failures.ownpool:TaskPool"},
    ),
    Case(
        "processes that are spawned",
        13,
        "worker_pool_start_method = spawn: nothing is inherited from the parent",
        _MIX,
        7,
        settings={"worker_pool_start_method": "spawn"},
        seconds=90,
    ),
    Case("celery worker -B", 13, "with beat inside of the worker", _MIX, 7, options=["-B", "-s", "{file}.schedule"]),
    Case(
        "celery multi", 13, "started by celery multi", _MIX, 7, starts=True, wrong=multi, after=end_multi, seconds=120
    ),
    Case(
        "a test's start_worker",
        13,
        "celery.contrib.testing, in a thread of the test's process",
        _MIX,
        7,
        starts=True,
        wrong=start_worker,
        seconds=200,
        after=end_start_worker,
    ),
    Case(
        "two apps in one process",
        13,
        "another app with a harness of its own, made later",
        _MIX,
        7,
        environment={"FAILURES_SECOND_APP": "1"},
    ),
]
