"""A producer: `python -m tests.sweep.producer <job id>` enqueues `credit` and commits. Exit code 0: it has."""

import sys

from sqlalchemy import text
from sqlalchemy.orm import Session

from tests.worker.app import credit, harness


def main(job_id: str) -> None:
    with Session(harness.database.engine) as session, session.begin():
        session.execute(text("SELECT 1"))  # what the producer's transaction is about
        harness.enqueue(session, credit.s(points=1), job_id=job_id)


if __name__ == "__main__":
    main(sys.argv[1])
