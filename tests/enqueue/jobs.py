"""Jobs that enqueue, for the workers of these tests: `-I tests.enqueue.jobs`."""

import os
import signal
import time

from sqlalchemy.orm import Session

from harness import Job
from tests.worker.app import credit, effect, harness, quick


@harness.job(name="first", policy=quick)
def first(session: Session, job: Job, die: str = "", fail: int = 0) -> None:
    """Enqueues the next job in its own transaction; then fails, or dies once before its commit (`die`: a new file)."""
    effect(session, job)
    harness.enqueue(session, credit.s(points=7), job_id=f"{job.id}-next")
    if job.attempt <= fail:
        raise ValueError(f"try {job.attempt} fails")
    if die:
        try:
            os.close(os.open(die, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


@harness.job(name="dual", policy=quick)
def dual(session: Session, job: Job, times: int = 2) -> None:
    """Sends jobs past its transaction."""
    for _ in range(times):
        credit.delay(points=1)
    effect(session, job)


@harness.job(name="slow", policy=quick)
def slow(session: Session, job: Job, pause: float) -> None:
    effect(session, job)
    time.sleep(pause)
