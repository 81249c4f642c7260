"""The ledger's app as the demo runs it: with jobs that fail in known ways, and retries after seconds.

A run has a service, a queue and a database schema of its own, which the environment names, so that it can share a
database and a broker with others.
"""

import os
import signal

import tenacity
from sqlalchemy.orm import Session

from examples.github_ledger.app import Delivery, app, book, harness
from harness import Job, Policy, backoff

__all__ = ["app", "fails_always", "fails_twice", "harness", "kills_its_process"]

SERVICE = os.environ.get("GITHUB_LEDGER_SERVICE", "github_ledger_demo")
SCHEMA = os.environ.get("GITHUB_LEDGER_SCHEMA", "core")

app.conf.update(
    task_default_queue=SERVICE,
    harness_service=SERVICE,
    harness_schema=SCHEMA,
    harness_relay_poll=0.1,
    harness_policies={
        SERVICE: Policy(
            stop=tenacity.stop_after_attempt(5),
            wait=backoff(base=0.2, cap=2),
            reason="the demo shows in seconds what takes minutes otherwise",
        )
    },
)


@harness.job(name="github_ledger.fails_twice")
def fails_twice(session: Session, job: Job, event: str, payload: Delivery) -> None:
    """A provider that is away for two tries. What was booked before the error is rolled back with it."""
    book(session, job.id, event, payload)
    if job.attempt <= 2:
        raise ConnectionError(f"the provider does not answer (try {job.attempt})")


@harness.job(name="github_ledger.fails_always")
def fails_always(session: Session, job: Job, event: str, payload: Delivery) -> None:
    """A provider that never comes back: a dead letter after the last try."""
    book(session, job.id, event, payload)
    raise ConnectionError(f"the provider does not answer (try {job.attempt})")


@harness.job(name="github_ledger.kills_its_process")
def kills_its_process(session: Session, job: Job, event: str, payload: Delivery) -> None:
    """A process that dies in the middle of the work, as one does that is out of memory. The second try lives."""
    book(session, job.id, event, payload)
    session.flush()
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
