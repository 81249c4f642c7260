"""An app with jobs, on a database of its own and no broker: what an enqueue writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery
from pydantic import PositiveInt
from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from harness import Harness, Job
from tests.worker.conftest import sender, start_worker, state
from tests.worker.running import State

__all__ = ["sender", "shop", "start_worker", "state"]


class Shop:
    """A producer: its own app and its own connections, as a web process has them."""

    def __init__(self, url: str, **conf: Any) -> None:
        self.app = Celery("shop", broker="memory://", set_as_current=False)
        self.app.conf.update(task_default_queue="jobs", **conf)
        self.harness = Harness(self.app, service="tests", database_url=url)
        self.state_url, self.url = url, make_url(url)
        self.engine: Engine = create_engine(self.url.set(drivername="postgresql+psycopg2"))
        self.state = State(url)

        @self.harness.job(name="credit", shared=False)
        def credit(session: Session, job: Job, points: PositiveInt = 1, pause: float = 0.0) -> int:
            raise AssertionError("runs in a worker only")

        @self.harness.job(name="echo", shared=False)
        def echo(session: Session, job: Job, **anything: object) -> None: ...

        @self.harness.job(name="first", shared=False)
        def first(session: Session, job: Job, die: str = "", fail: int = 0) -> None: ...

        @self.harness.job(name="dual", shared=False)
        def dual(session: Session, job: Job, times: int = 2) -> None: ...

        @self.harness.job(name="slow", shared=False)
        def slow(session: Session, job: Job, pause: float) -> None: ...

        self.credit, self.echo, self.first, self.dual, self.slow = credit, echo, first, dual, slow

    def session(self) -> Session:
        return Session(self.engine)

    @contextmanager
    def begin(self) -> Iterator[Session]:
        """A session in a transaction: committed at the end of the block, rolled back on an exception."""
        with Session(self.engine) as session, session.begin():
            yield session

    def rows(self) -> list[Any]:
        return self.state.sql("SELECT * FROM core.inbox ORDER BY id")

    def close(self) -> None:
        self.engine.dispose()
        self.state.close()
        self.harness.close()


@pytest.fixture
def shop(database: str) -> Iterator[Shop]:
    made = Shop(database)
    yield made
    made.close()
