"""The app of the soak's workers: the jobs of `tests.worker.app`, and those that want order, others' messages or claims.

What is noted beside the work transaction (`order_runs`, `calls`) stays where that is rolled back.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
import tenacity
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from harness import Fields, Job, NotReady, Permanent, Policy
from tests.worker.app import app, effect, harness, quick

__all__ = ["app"]
app.conf.update(harness_receive_batch=10)
#: The jobs before this one of its key whose turn is over: done, or dead at least once, after which the key goes on.
SEES = """
INSERT INTO order_runs (key, number, over)
SELECT %(key)s, %(number)s, array(
    SELECT o.number FROM orders o WHERE o.key = %(key)s AND o.number < %(number)s AND (
        EXISTS (SELECT FROM core.processed_jobs f WHERE f.job_id = o.job_id AND f.state IN ('done', 'dead'))
        OR EXISTS (SELECT FROM core.dead_letters d WHERE d.job_id = o.job_id)))
"""


@contextmanager
def outside() -> Iterator[Any]:
    """A cursor of a connection of its own, where each statement commits by itself."""
    url = make_url(harness.settings.database_url).set(drivername="postgresql")
    with closing(psycopg2.connect(url.render_as_string(hide_password=False))) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            yield cursor


@harness.job(name="keyed", policy=quick)
def keyed(session: Session, job: Job, key: str, number: int, how: str = "") -> None:
    with outside() as cursor:
        cursor.execute(SEES, {"key": key, "number": number})
    effect(session, job)
    if how == "transient" and job.attempt == 1:
        raise ValueError("the first try fails")
    if how == "crash" and job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "permanent":
        raise Permanent("this can never work")


@harness.job(name="outside", policy=quick, effects="external", time_limit=6, claim_margin=2)
def call_outside(session: Session, job: Job, how: str = "") -> None:
    if how == "transient" and job.attempt == 1:
        raise ValueError("the other side is busy, and has done nothing")
    with outside() as cursor:
        cursor.execute("INSERT INTO calls (job_id) VALUES (%s)", (job.id,))
    effect(session, job)


@harness.job(name="waits", policy=Policy(not_ready_wait=tenacity.wait_fixed(0.5)))
def waits(session: Session, job: Job, parent: str) -> None:
    if not session.scalar(text("SELECT count(*) FROM ledger WHERE job_id = :parent"), {"parent": parent}):
        raise NotReady(f"{parent} has not been done yet")
    effect(session, job)


@harness.job(name="taken", policy=quick)
def taken(session: Session, job: Job, item: str, fails: bool = False) -> None:
    effect(session, job, item)
    if fails and job.attempt == 1:
        raise ValueError("the first try fails")


harness.source("foreign", job=taken, queue="foreign", read=Fields(ordering_key="headers.x-key"))
