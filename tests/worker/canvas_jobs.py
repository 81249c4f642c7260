"""Jobs and plain tasks that are put together into chains, groups and chords. Each effect is a row of `ledger`.

A step's note is JSON: what it got, and its correlation id.
"""

import json
import os
from pathlib import Path
from typing import Any

import tenacity
from celery import Celery
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from harness import Harness, Job, Permanent, Policy, backoff

INSERT = text("INSERT INTO ledger (job_id, task, note) VALUES (:id, :task, :note)")
quick = Policy(stop=tenacity.stop_after_attempt(5), wait=backoff(base=0.05, cap=0.5), reason="tests do not wait")


def _note(got: object, correlation: str | None) -> str:
    return json.dumps({"got": got, "correlation": correlation})


def install(app: Celery, harness: Harness) -> None:
    """Register the steps."""
    plain_engine: list[Any] = []

    def plainly(task: Any, got: object) -> None:
        if not plain_engine:
            url = make_url(os.environ["HARNESS_DATABASE_URL"]).set(drivername="postgresql+psycopg2")
            plain_engine.append(create_engine(url))
        correlation = (task.request.headers or {}).get("harness_correlation_id")
        with plain_engine[0].begin() as connection:
            connection.execute(INSERT, {"id": task.request.id, "task": task.name, "note": _note(got, correlation)})

    @harness.job(name="step", policy=quick)
    def step(session: Session, job: Job, got: Any = None, add: int = 1, how: str = "", switch: str = "") -> Any:
        """Adds to what it got. `how`: fails once (`retry`), or is dead (`dead`) until the file `switch` is there."""
        session.execute(INSERT, {"id": job.id, "task": job.task, "note": _note(got, job.correlation_id)})
        if how == "retry" and job.attempt == 1:
            raise ValueError("once")
        if how == "dead" and not (switch and Path(switch).exists()):
            raise Permanent("dead until the switch")
        if how == "unserialisable":
            return object()
        return (got if isinstance(got, int) else 0) + add

    @harness.job(name="total", policy=quick)
    def total(session: Session, job: Job, parts: list[int]) -> int:
        session.execute(INSERT, {"id": job.id, "task": job.task, "note": _note(parts, job.correlation_id)})
        return sum(parts)

    @harness.job(name="errback", policy=quick)
    def errback(session: Session, job: Job, failed: str) -> None:
        session.execute(INSERT, {"id": job.id, "task": job.task, "note": _note(failed, job.correlation_id)})

    @app.task(name="plain_step", bind=True)
    def plain_step(self: Any, got: int | None = None, add: int = 1) -> int:
        plainly(self, got)
        return (got or 0) + add

    @app.task(name="plain_total", bind=True)
    def plain_total(self: Any, parts: list[int]) -> int:
        plainly(self, parts)
        return sum(parts)

    @app.task(name="plain_errback", bind=True)
    def plain_errback(self: Any, failed: str) -> None:
        plainly(self, failed)
