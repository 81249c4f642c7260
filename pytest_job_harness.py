"""The pytest plugin: fixtures around `harness.testing`.

It stands outside of the package, and imports it only inside of a fixture: pytest imports every installed plugin at each
start, and one that brought Celery and SQLAlchemy along would slow down every test run in the environment.

========================  ==========================================================================================
``harness_app``           what stands behind ``celery -A``: the ini option ``harness_app``, or override this fixture
``harness_session``       a Session in a transaction that is rolled back; override it with your project's own
``harness_connection``    the Connection of that transaction
``harness_jobs``          a ``harness.testing.Jobs`` on ``harness_session``
``harness_worker``        a ``harness.testing.Worker`` that has started; its log is shown where the test fails
``harness_start_worker``  starts workers with options of your own
``harness_database_url``  the configured database, which must be migrated, else an embedded one
``harness_broker_url``    the configured broker, else an embedded one
========================  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from celery import Celery
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

    from harness import Harness
    from harness.testing import Jobs, Worker
    from harness.testing.servers import Servers

_WORKERS = pytest.StashKey[list[Any]]()
_LINES = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("harness_app", "The Celery app of the project, as in `celery -A`: for the fixtures harness_*.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Show the log of the workers of a test that has failed."""
    report = yield
    if report.failed:
        for worker in item.stash.get(_WORKERS, ()):
            tail = "\n".join(worker.text().splitlines()[-_LINES:])
            report.sections.append((f"harness worker's log, the last {_LINES} lines of {worker.log}", tail))
    return report


@pytest.fixture(scope="session")
def harness_app(pytestconfig: pytest.Config) -> str | Celery | Harness:
    """The app whose jobs are tested: a text as for `celery -A`, the Celery object, or its Harness."""
    name: str = pytestconfig.getini("harness_app")
    if not name:
        raise pytest.UsageError(
            "Which app? Say so in the configuration of pytest, as you do to celery -A: harness_app = shop.celery:app. "
            "Or override the fixture harness_app in your conftest.py."
        )
    return name


@pytest.fixture(scope="session")
def harness_servers() -> Iterator[Servers]:
    """Embedded servers, where they are needed; they end with the session."""
    from harness.testing.servers import Servers

    with Servers() as servers:
        yield servers


@pytest.fixture(scope="session")
def harness_database_url(harness_app: str | Celery | Harness, harness_servers: Servers) -> str:
    """Where the test database is. One of your own must have been migrated."""
    from harness.testing.servers import harness_of

    return harness_servers.database_url(harness_of(harness_app))


@pytest.fixture(scope="session")
def harness_broker_url(harness_app: str | Celery | Harness, harness_servers: Servers) -> str:
    """Where the broker is."""
    from harness.testing.servers import harness_of

    return harness_servers.broker_url(harness_of(harness_app).app)


@pytest.fixture
def harness_connection(harness_database_url: str) -> Iterator[Connection]:
    """A connection in a transaction that is rolled back after the test."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    from harness.store.database import with_driver

    engine = create_engine(with_driver(harness_database_url), poolclass=NullPool)
    with engine.connect() as connection:
        transaction = connection.begin()
        yield connection
        transaction.rollback()


@pytest.fixture
def harness_session(harness_connection: Connection) -> Iterator[Session]:
    """A session in that transaction: its `commit()` ends a savepoint, so that the code under test may call it."""
    from sqlalchemy.orm import Session

    with Session(harness_connection, join_transaction_mode="create_savepoint") as session:
        yield session


@pytest.fixture
def harness_jobs(harness_app: str | Celery | Harness, harness_session: Session) -> Iterator[Jobs]:
    """Runs jobs in the transaction of `harness_session`, and catches what is sent."""
    from harness.testing import Jobs
    from harness.testing.servers import harness_of

    with Jobs(harness_of(harness_app), harness_session) as jobs:
        yield jobs


@pytest.fixture
def harness_start_worker(
    request: pytest.FixtureRequest,
    harness_app: str | Celery | Harness,
    harness_database_url: str,
    harness_broker_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Worker]]:
    """`harness_start_worker(**options)` starts one (see `harness.testing.Worker`); it is stopped after the test."""
    from harness.testing import Worker
    from harness.testing.servers import harness_of

    if "harness_jobs" in request.fixturenames:
        raise pytest.UsageError("harness_jobs keeps messages from the broker: a real worker needs a test of its own.")
    if not isinstance(harness_app, str):
        raise pytest.UsageError("A worker is another process and needs the app's name: let harness_app be a text.")
    settings = harness_of(harness_app).settings
    known = {"broker_url": harness_broker_url, "database_url": harness_database_url}
    known |= {"service": settings.service, "schema": settings.schema_name}
    workers: list[Worker] = []
    request.node.stash[_WORKERS] = workers

    def start(**options: Any) -> Worker:
        folder: Path = tmp_path_factory.mktemp("harness-worker")
        worker = Worker(harness_app, folder, **(known | options))
        workers.append(worker)
        return worker.start()

    yield start
    for worker in workers:
        worker.stop()


@pytest.fixture
def harness_worker(harness_start_worker: Callable[..., Worker]) -> Worker:
    """A real worker with its relay, one process in the pool; the delays of retries are cut to 0.2 s."""
    return harness_start_worker()
