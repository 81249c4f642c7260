"""The Celery app of the process tests: jobs that do what goes wrong in production.

Configured by the environment: BROKER_URL, HARNESS_DATABASE_URL, TEST_SETTINGS (JSON, over all else). Each effect is a
row of `ledger`.
"""

import json
import os
import signal
import sys
import time

import tenacity
from celery import Celery, shared_task
from celery.exceptions import Ignore, Reject
from pydantic import PositiveInt
from sqlalchemy import text
from sqlalchemy.orm import Session

from harness import Harness, Job, JobTask, NotReady, Permanent, Policy, RetryLater, backoff
from harness.testing import failpoints

REDIS = os.environ["BROKER_URL"].startswith("redis")
app = Celery("tests")
app.conf.update(
    broker_url=os.environ["BROKER_URL"],
    broker_connection_retry_on_startup=True,
    # A worker that is killed while it looks for unacknowledged messages holds kombu's mutex for 300 s by default.
    broker_transport_options={
        "visibility_timeout": 4,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "unacked_mutex_expire": 5,
    }
    if REDIS
    else {},
    task_default_queue="jobs",
    worker_prefetch_multiplier=1,
    worker_send_task_events=True,
    harness_relay_poll=0.05,
    harness_fence_wait=3.0,
    harness_recount_lease=2.0,
    harness_busy_delay=0.5,
    harness_lease=5.0,
    harness_outage_hold=30.0,
)
app.conf.update(json.loads(os.environ.get("TEST_SETTINGS", "{}")))
harness = Harness(app, service=os.environ.get("TEST_SERVICE", "tests"))
quick = Policy(stop=tenacity.stop_after_attempt(5), wait=backoff(base=0.05, cap=0.5), reason="tests do not wait")
once = Policy(stop=tenacity.stop_after_attempt(1), reason="tests")


def effect(session: Session, job: Job, note: str = "") -> None:
    session.execute(
        text("INSERT INTO ledger (job_id, task, note) VALUES (:id, :task, :note)"),
        {"id": job.id, "task": job.task, "note": note},
    )


@harness.job(name="credit", policy=quick)
def credit(session: Session, job: Job, points: PositiveInt = 1, pause: float = 0.0) -> int:
    effect(session, job, str(points))
    time.sleep(pause)
    return points


@harness.job(name="fails", policy=quick)
def fails(session: Session, job: Job) -> None:
    effect(session, job)
    raise ValueError(f"try {job.attempt} failed")


@harness.job(name="fails_until", policy=quick)
def fails_until(session: Session, job: Job, good: int) -> None:
    effect(session, job)
    if job.attempt < good:
        raise ValueError(f"try {job.attempt} failed")


@harness.job(name="last_try", policy=once)
def last_try(session: Session, job: Job, switch: str) -> None:
    """The first copy that runs fails its last try; every other one succeeds."""
    effect(session, job)
    try:
        os.close(os.open(switch, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    raise ValueError("the first copy fails")


@harness.job(name="kills_child", policy=quick)
def kills_child(session: Session, job: Job, times: int = 99, pause: float = 0.0) -> None:
    effect(session, job)
    time.sleep(pause)
    if job.attempt <= times:
        os.kill(os.getpid(), signal.SIGKILL)


@harness.job(name="kills_worker", policy=quick)
def kills_worker(session: Session, job: Job, starts: str = "") -> None:
    """Kills its worker each time; one byte in the file `starts` for each start."""
    effect(session, job)
    if starts:
        with open(starts, "ab") as file:
            file.write(b".")
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


@harness.job(name="leaves_process", policy=once)
def leaves_process(session: Session, job: Job, seconds: float) -> None:
    """Starts a process that goes on after it, as a handler may; the effect names it."""
    pid = os.fork()
    if not pid:
        time.sleep(seconds)
        os._exit(0)
    effect(session, job, str(pid))


@harness.job(name="sleeps", policy=quick, time_limit=1)
def sleeps(session: Session, job: Job, where: str) -> None:
    effect(session, job)
    if where == "database":
        session.execute(text("SELECT pg_sleep(60)"))
    time.sleep(60)


@harness.job(name="soft", policy=once, soft_time_limit=1, time_limit=20)
def soft(session: Session, job: Job) -> None:
    effect(session, job)
    time.sleep(15)


@harness.job(name="permanent")
def permanent(session: Session, job: Job) -> None:
    effect(session, job)
    raise Permanent("this can never work")


@harness.job(name="raises", policy=once)
def raises(session: Session, job: Job, what: str) -> None:
    effect(session, job)
    if what == "system_exit":
        sys.exit(3)
    if what == "keyboard_interrupt":
        raise KeyboardInterrupt
    if what == "generator_exit":
        raise GeneratorExit
    if what == "recursion":

        def deeper() -> None:
            deeper()

        deeper()
    if what == "memory":
        raise MemoryError
    if what == "reject":
        raise Reject("no", requeue=False)
    if what == "ignore":
        raise Ignore
    if what == "group":
        raise ExceptionGroup("both", [ValueError("a"), TypeError("b")])
    if what == "unpicklable":

        class Local(Exception):
            def __reduce__(self) -> str:
                raise TypeError("cannot pickle")

        raise Local("x")
    if what == "speechless":

        class Speechless(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no words")

            __repr__ = __str__

        raise Speechless


@harness.job(name="returns_unserialisable", policy=quick)
def returns_unserialisable(session: Session, job: Job) -> object:
    effect(session, job)
    return object()


@harness.job(name="not_ready", policy=quick)
def not_ready(session: Session, job: Job) -> None:
    raise NotReady("not yet")


@harness.job(name="later", policy=quick)
def later(session: Session, job: Job, delay: float = 0.2) -> None:
    effect(session, job)
    if job.attempt == 1:
        raise RetryLater(delay, "once more")


@harness.job(name="celery_retry", policy=quick, bind=True)
def celery_retry(self: JobTask, session: Session, job: Job) -> None:
    effect(session, job)
    if job.attempt < 3:
        self.retry(countdown=0.1)


@harness.job(name="commits", policy=quick)
def commits(session: Session, job: Job) -> None:
    effect(session, job)
    session.commit()


@harness.job(name="swallows", policy=quick)
def swallows(session: Session, job: Job) -> None:
    effect(session, job)
    try:
        session.execute(text("SELECT 1/0"))
    except Exception:
        pass


@harness.job(name="goes_on", policy=quick)
def goes_on(session: Session, job: Job) -> None:
    """Its second statement says nothing of what was wrong with the first."""
    try:
        session.execute(text("SELECT 1/0"))
    except Exception:
        pass
    effect(session, job)


@harness.job(name="kills_connection", policy=quick)
def kills_connection(session: Session, job: Job, times: int = 99) -> None:
    """Ends its own database connection, as an out-of-memory backend would."""
    effect(session, job, f"try {job.attempt}, delivery {job.deliveries}")
    if job.deliveries <= times:
        session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))


@harness.job(name="echo", policy=once)
def echo(session: Session, job: Job, **anything: object) -> None:
    effect(session, job)
    raise Permanent("kept for its payload")


@shared_task(base=JobTask, name="shared")
def shared(session: Session, job: Job, n: int) -> None:
    effect(session, job, str(n))


@app.task(name="plain")
def plain(n: int) -> int:
    return n + 1


def waiters(session: Session) -> int:
    """How many other copies wait for this transaction's fence now."""
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND transactionid = pg_current_xact_id()::xid"
    return int(session.execute(text(query)).scalar_one())


@harness.job(name="race", policy=once)
def race(session: Session, job: Job, pause: float, switch: str = "") -> None:
    """Works for `pause` seconds and notes who waited. With `switch` (a new file) the first copy to run fails then."""
    time.sleep(pause)
    seen = waiters(session)
    effect(session, job, str(seen))
    if switch:
        try:
            file = os.open(switch, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return
        os.write(file, str(seen).encode())
        os.close(file)
        raise ValueError("the first copy fails its last try")


if os.environ.get("OBSERVED"):
    from tests.worker import observed

    observed.install(app, harness)

if os.environ.get("CANVAS"):
    from tests.worker import canvas_jobs

    canvas_jobs.install(app, harness)

if os.environ.get(failpoints.VARIABLE):
    failpoints.install()


if os.environ.get("TEST_KOMBUS_FETCH"):  # known bad
    from harness.worker import channel

    vars(channel)["keep_fetched"] = lambda _: None


if os.environ.get("TEST_NEW_RELEASE"):

    @harness.job(name="new", consumer="new-stable-name", policy=quick)
    def new(session: Session, job: Job) -> None:
        effect(session, job)


@harness.job(name="early", policy=quick, acks_late=False)
def early(session: Session, job: Job, pause: float) -> None:
    effect(session, job)
    time.sleep(pause)
