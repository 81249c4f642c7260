"""An app of its own in the test's process, on a fresh database."""

import itertools
from collections.abc import Iterator

import pytest
from celery import Celery
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from harness import Harness
from harness.store.database import with_driver

_numbers = itertools.count(1)


@pytest.fixture
def harness_database_url(database: str) -> str:
    """The plugin's fixtures on the suite's own server."""
    engine = create_engine(with_driver(database), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE ledger (id bigserial PRIMARY KEY, job_id text, note text)"))
        connection.execute(text("CREATE TABLE parents (id int PRIMARY KEY)"))
        connection.execute(text("CREATE TABLE children (parent int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)"))
    return database


@pytest.fixture
def app() -> Iterator[Celery]:
    """Its broker and result backend are places where nobody listens."""
    app = Celery("bank", broker="redis://127.0.0.1:1/0", backend="redis://127.0.0.1:1/1", set_as_current=False)
    app.conf.task_default_queue = "bank"
    yield app
    app.close()


@pytest.fixture
def harness(app: Celery, database: str) -> Iterator[Harness]:
    harness = Harness(app, service=f"bank{next(_numbers)}", database_url=database)
    yield harness
    harness.close()


@pytest.fixture
def harness_app(harness: Harness) -> Harness:
    return harness


@pytest.fixture
def elsewhere(harness_database_url: str) -> Iterator[Session]:
    """What others see: only what is committed."""
    engine = create_engine(with_driver(harness_database_url), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with Session(engine) as session:
        yield session
