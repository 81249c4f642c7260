"""The app of the worker, in two forms by FAILURES_SIDE: `harness`, or `plain` with the settings recommended for Celery.

The handlers are the same functions. On plain Celery each runs in a transaction of its own. Each effect is a row of
`ledger`; each delivery, whatever becomes of it, a byte in the file FAILURES_DELIVERIES.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

import tenacity
from billiard.exceptions import SoftTimeLimitExceeded
from celery import Celery
from celery.exceptions import Ignore, Reject
from kombu import messaging
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from harness import Harness, Job, Policy, backoff
from harness.store.database import with_driver

if sys.platform == "linux":
    # PR_SET_PDEATHSIG: a run that is cut off leaves no worker behind.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)

HARNESS = os.environ["FAILURES_SIDE"] == "harness"
SETTINGS = json.loads(os.environ.get("FAILURES_SETTINGS", "{}"))
URL: Any = SETTINGS.pop("broker_url", os.environ["BROKER_URL"])

app = Celery("failures")
app.conf.update(
    broker_url=URL,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": int(os.environ.get("FAILURES_VISIBILITY", "4")),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "unacked_mutex_expire": 5,
    }
    if "redis" in os.environ["BROKER_URL"][:6]
    else {},
    task_default_queue="jobs",
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_serializer="json",
    accept_content=["json"],
)
app.conf.update(SETTINGS)

if HARNESS:
    app.conf.update(
        harness_service="failures",
        harness_relay_poll=0.1,
        harness_fence_wait=3.0,
        harness_recount_lease=2.0,
        harness_busy_delay=0.5,
        harness_lease=4.0,
        harness_outage_hold=30.0,
    )
    harness = Harness(app)
    quick = Policy(
        stop=tenacity.stop_after_attempt(5),
        wait=backoff(base=0.05, cap=0.5),
        not_ready_wait=backoff(base=0.5, cap=1),
        reason="the table is short",
    )
else:
    engine = create_engine(with_driver(os.environ["HARNESS_DATABASE_URL"]), pool_size=1)


@dataclass(frozen=True)
class PlainJob:
    id: str
    task: str
    attempt: int


def job(name: str, **options: Any) -> Any:
    """Register a handler `(session, job, …)` on either side."""

    def register(function: Any) -> Any:
        if HARNESS:
            return harness.job(name=name, policy=quick, **options)(function)

        def plain(self: Any, *args: Any, **kwargs: Any) -> Any:
            with Session(engine) as session, session.begin():
                described = PlainJob(self.request.id, self.name, self.request.retries + 1)
                return function(session, described, *args, **kwargs)

        return app.task(name=name, bind=True, **options)(plain)

    return register


def effect(session: Session, job: Any) -> None:
    session.execute(text("INSERT INTO ledger (job_id, task) VALUES (:id, :task)"), {"id": job.id, "task": job.task})


def count_deliveries() -> None:
    """Count what the broker gives to this worker, before anybody looks at it."""
    usual = messaging.Consumer._receive_callback
    file = os.open(os.environ["FAILURES_DELIVERIES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def receive(self: Any, message: Any) -> Any:
        if "jobs" in {queue.name.split("@")[0] for queue in self.queues}:
            os.write(file, b".")
        return usual(self, message)

    messaging.Consumer._receive_callback = receive


count_deliveries()


@job("credit")
def credit(session: Session, job: Job, points: int = 1, pause: float = 0.0) -> int:
    effect(session, job)
    time.sleep(pause)
    return points


@job("other")
def other(session: Session, job: Job) -> None:
    effect(session, job)


@job("echo")
def echo(session: Session, job: Job, **anything: object) -> None:
    effect(session, job)


@job("dies")
def dies(session: Session, job: Job, how: str, times: int = 99) -> None:
    effect(session, job)
    if job.attempt > times:
        return
    if how == "segfault":
        ctypes.string_at(0)
    if how == "os_exit":
        os._exit(0)
    if how == "worker":
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


@job("hangs", time_limit=1)
def hangs(session: Session, job: Job, where: str) -> None:
    effect(session, job)
    if where == "database":
        session.execute(text("SELECT pg_sleep(30)"))
    ctypes.CDLL(None).sleep(30) if where == "c" else time.sleep(30)


@job("soft", soft_time_limit=1, time_limit=30)
def soft(session: Session, job: Job, swallow: bool) -> None:
    effect(session, job)
    try:
        time.sleep(3)
    except SoftTimeLimitExceeded:
        if not swallow:
            raise


@job("raises")
def raises(session: Session, job: Job, what: str) -> None:
    effect(session, job)
    raise made(what)


def made(what: str) -> BaseException:
    class Local(Exception):
        def __reduce__(self) -> str:
            raise TypeError("cannot pickle")

    kinds: dict[str, BaseException] = {
        "error": ValueError("no"),
        "unpicklable": Local("x"),
        "group": ExceptionGroup("both", [ValueError("a"), TypeError("b")]),
        "base": BaseException("bare"),
        "system_exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "generator_exit": GeneratorExit(),
        "recursion": RecursionError(),
        "memory": MemoryError(),
        "reject": Reject("no", requeue=False),
        "ignore": Ignore(),
    }
    return kinds[what]


@job("once")
def once(session: Session, job: Job, note: str) -> None:
    """Fails as long as the file `note` is not there, and makes it: the first try alone fails."""
    effect(session, job)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(note, os.O_CREAT | os.O_EXCL))
        raise ValueError("the first try fails")


@job("retries")
def retries(session: Session, job: Job) -> None:
    effect(session, job)
    if job.attempt == 1:
        app.tasks["retries"].retry(countdown=0.5)


@job("returns_object")
def returns_object(session: Session, job: Job) -> object:
    effect(session, job)
    return object()


@job("sql")
def sql(session: Session, job: Job, statement: str, pause: float = 0.0) -> None:
    effect(session, job)
    session.execute(text(statement))
    time.sleep(pause)
    session.execute(text("SELECT 1"))


@job("grows")
def grows(session: Session, job: Job, megabytes: int) -> int:
    effect(session, job)
    return len(bytearray(megabytes << 20))


@app.task(name="no_job")
def no_job(*args: Any, **kwargs: Any) -> None:
    """A task, but no job: nothing of the harness."""


if os.environ.get("FAILURES_HOOKS"):
    from tests.failures import hooks

    hooks.install(app)

if os.environ.get("FAILURES_SECOND_APP") and HARNESS:
    # Another app with a harness of its own in the same process, made last: it is Celery's current app then.
    second = Celery("second", broker="memory://")
    Harness(second, database_url="postgresql://nobody@127.0.0.1:1/nothing")

if wrong := os.environ.get("FAILURES_CLOCK"):
    from tests.failures.clock import put_off_by

    put_off_by(float(wrong))

sys.setrecursionlimit(3000)
