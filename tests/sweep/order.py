"""Jobs with an ordering key, and somebody who holds a key, for one lane."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from celery import Celery
from pydantic import PositiveInt
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from harness import Harness, Job
from harness.store.store import Store

HOLD = "SELECT pg_advisory_xact_lock({}) FROM (VALUES (:service, :key)) AS i (service, ordering_key)"


class Keyed:
    """A producer of the lane's service, in this process."""

    def __init__(self, database: str, service: str) -> None:
        self.service = service
        app = Celery(f"producer of {service}", broker="memory://", set_as_current=False)
        app.conf.task_default_queue = service
        self.harness = Harness(app, service=service, database_url=database)
        self.engine = create_engine(make_url(database).set(drivername="postgresql+psycopg2"))

        @self.harness.job(name="credit", shared=False)
        def credit(session: Session, job: Job, points: PositiveInt = 1, pause: float = 0.0) -> int: ...

        @self.harness.job(name="outside", shared=False)
        def outside(session: Session, job: Job) -> None: ...

        self.tasks = {"credit": credit, "outside": outside}

    def put(self, key: str, *jobs: str, task: str = "credit") -> None:
        """Enqueue jobs of one key, each in a transaction of its own, one after the other."""
        for job in jobs:
            with Session(self.engine) as session, session.begin():
                self.harness.enqueue(session, self.tasks[task].s(), job_id=job, ordering_key=key)

    @contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Hold a key, as a job does that is at work."""
        with self.engine.connect() as connection:
            lock = Store.of("core").order.lock("i")
            connection.execute(text(HOLD.format(lock)), {"service": self.service, "key": key})
            yield

    def close(self) -> None:
        self.engine.dispose()
        self.harness.close()
