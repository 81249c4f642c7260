"""The app that every release runs: jobs that complete, are deferred, die, lose their process, and are replayed."""

import os
import signal
from collections.abc import Mapping
from typing import Any

import tenacity
from celery import Celery
from sqlalchemy import text
from sqlalchemy.orm import Session

from harness import Harness, Job, Permanent, Policy, backoff

app = Celery("rollout", broker=os.environ["CELERY_BROKER_URL"])
app.conf.update(
    task_default_queue="rollout",
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    harness_schema=os.environ.get("ROLLOUT_SCHEMA", "core"),
    harness_relay_poll=0.05,
)
if os.environ["CELERY_BROKER_URL"].startswith("redis"):
    app.conf.broker_transport_options = {"visibility_timeout": 60}
harness = Harness(app)
quick = Policy(stop=tenacity.stop_after_attempt(3), wait=backoff(base=0.05, cap=0.2), reason="tests do not wait")


def effect(session: Session, job: Job) -> None:
    values = {"id": job.id, "task": job.task, "note": f"try {job.attempt}"}
    session.execute(text("INSERT INTO ledger (job_id, task, note) VALUES (:id, :task, :note)"), values)


def is_open(session: Session, arguments: Mapping[str, Any] | None = None) -> bool:
    return session.execute(text("SELECT count(*) FROM switch")).scalar_one() > 0


@harness.job(name="completes", policy=quick)
def completes(session: Session, job: Job) -> str:
    effect(session, job)
    return job.id


@harness.job(name="fails_once", policy=quick)
def fails_once(session: Session, job: Job) -> None:
    effect(session, job)
    if job.attempt == 1:
        raise ValueError("once")


@harness.job(name="loses_process", policy=quick)
def loses_process(session: Session, job: Job) -> None:
    effect(session, job)
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@harness.job(name="waits_for_switch", policy=quick, can_replay=is_open)
def waits_for_switch(session: Session, job: Job) -> None:
    effect(session, job)
    if not is_open(session):
        raise Permanent("the switch is off")


@harness.job(name="never", policy=quick)
def never(session: Session, job: Job) -> None:
    raise Permanent("this can never work")
