"""A job of which one runs at a time, for the workers of these tests: `-I tests.order.capped`."""

from sqlalchemy import text
from sqlalchemy.orm import Session

from harness import Job
from tests.order.jobs import outside
from tests.worker.app import harness


@harness.job(name="alone", max_in_flight=1)
def alone(session: Session, job: Job) -> None:
    """Notes how many others are in flight."""
    with outside().cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM core.inbox WHERE leased_until > now() AND relay_error IS NULL AND job_id <> %s",
            (job.id,),
        )
        beside = cursor.fetchone()[0]
    session.execute(
        text("INSERT INTO capped_runs (job, beside) VALUES (:job, :beside)"), {"job": job.id, "beside": beside}
    )
