"""A job of the sweep that calls the other side: a table, over a connection of its own that no fault touches."""

import psycopg2
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from harness import Job
from tests.worker.app import effect, harness, quick


@harness.job(name="outside", policy=quick, effects="external", time_limit=4, claim_margin=1)
def outside(session: Session, job: Job) -> None:
    url = make_url(harness.settings.database_url).set(drivername="postgresql")
    connection = psycopg2.connect(url.render_as_string(hide_password=False))
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO calls VALUES (%s)", (job.id,))
    connection.close()
    effect(session, job)
