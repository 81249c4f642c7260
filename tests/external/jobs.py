"""The Celery app of the external tests: jobs that call the other side, and note it in the database afterwards."""

import signal
import time
import urllib.error
import urllib.request

import tenacity
from sqlalchemy import text
from sqlalchemy.orm import Session

from harness import Job, NotReady, OutcomeUnknown, Permanent, Policy, RetryLater
from tests.worker.app import app, effect, harness, quick

__all__ = ["app"]


def call(url: str, job: Job) -> None:
    """The other side, in the middle of which this process may be killed."""
    request = urllib.request.Request(url, data=b"{}", headers={"Idempotency-Key": job.idempotency_key})
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


@harness.job(name="charge", policy=quick, effects="external", time_limit=30, claim_margin=3)
def charge(session: Session, job: Job, url: str, before: float = 0.0, after: float = 0.0) -> str:
    time.sleep(before)
    call(url, job)
    time.sleep(after)
    effect(session, job)
    return job.idempotency_key


@harness.job(name="notify", policy=quick, effects="external", time_limit=30, claim_margin=3)
def notify(job: Job, url: str, after: float = 0.0) -> None:
    """It has nothing to note."""
    call(url, job)
    time.sleep(after)


@harness.job(name="brief", policy=quick, effects="external", time_limit=8, claim_margin=1)
def brief(session: Session, job: Job, url: str, before: float = 0.0, after: float = 0.0) -> None:
    """As `charge`, with less time."""
    charge(session, job, url, before, after)


@harness.job(name="slow", policy=quick, effects="external", time_limit=1, claim_margin=1)
def slow(session: Session, job: Job, url: str) -> None:
    effect(session, job)
    call(url, job)
    time.sleep(60)


@harness.job(name="soft_outside", policy=quick, effects="external", time_limit=20, soft_time_limit=1)
def soft_outside(job: Job, url: str) -> None:
    call(url, job)
    time.sleep(60)


@harness.job(name="stopped", policy=quick, effects="external", time_limit=1, claim_margin=1)
def stopped(session: Session, job: Job, url: str, seconds: float) -> None:
    """Goes on after its time, as a process that was stopped and let go: nothing ends it, and it is blind meanwhile."""
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    effect(session, job)
    call(url, job)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.1)


@harness.job(
    name="fails_outside", policy=quick, effects="external", time_limit=30, unknown=(TimeoutError, urllib.error.URLError)
)
def fails_outside(session: Session, job: Job, url: str, how: str, good: int = 2) -> None:
    call(url, job)
    effect(session, job)
    if job.attempt >= good:
        return
    if how == "raises":
        raise ValueError("the other side says no")
    if how == "later":
        raise RetryLater(0.1, "the other side is busy")
    if how == "permanent":
        raise Permanent("the card is stolen")
    if how == "unknown":
        raise OutcomeUnknown("no answer")
    if how == "mapped":
        raise TimeoutError("no answer")
    if how == "connection":
        session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    if how == "swallows":
        try:
            session.execute(text("SELECT 1/0"))
        except Exception:
            pass
        return


@harness.job(name="second_thought", policy=quick)
def second_thought(session: Session, job: Job, url: str = "") -> None:
    """It wants a person's word first."""
    if job.replay_of is None:
        raise Permanent("not before somebody has looked")
    effect(session, job)


@harness.job(name="second_call", policy=quick, effects="external", time_limit=30, claim_margin=3)
def second_call(session: Session, job: Job, url: str) -> None:
    """The same, and its effect is outside."""
    if job.replay_of is None:
        raise Permanent("not before somebody has looked")
    call(url, job)
    effect(session, job)


impatient = Policy(not_ready_wait=tenacity.wait_fixed(0.3), not_ready_deadline=4)


@harness.job(name="create")
def create(session: Session, job: Job, account: str) -> None:
    effect(session, job, account)


@harness.job(name="modify", policy=impatient)
def modify(session: Session, job: Job, account: str) -> None:
    """It may overtake the job that creates what it changes."""
    if not session.scalar(
        text("SELECT count(*) FROM ledger WHERE task = 'create' AND note = :account"), {"account": account}
    ):
        raise NotReady(f"there is no account {account}")
    effect(session, job, account)
