"""Fixtures: real servers, shared by the session, and fresh places on them for each test.

==================  =====================================================================================
``postgres_url``    superuser's URL of the shared server (HARNESS_TEST_DATABASE_URL wins)
``database``        URL of a fresh, migrated database; dropped after the test
``empty_database``  URL of a fresh database without the schema
``redis_url``       URL of an emptied database of the shared Valkey (HARNESS_TEST_REDIS_URL wins)
``rabbitmq_url``    URL of a fresh virtual host (RABBITMQ_URL wins)
``broker_url``      both of these in turn: the test runs once on each
``own_postgres``    a :class:`Postgres` for this test alone: ``.stop() .kill() .start() .restart() .url .pid``
``own_database``    URL of a migrated database on ``own_postgres``
``own_redis``       likewise :class:`Valkey`;  ``own_rabbitmq``: likewise :class:`RabbitMQ`
``own_broker``      both of these in turn
``pgbouncer``       a :class:`PgBouncer` in front of ``database``
``servers``         the session's :class:`Servers`, for fixtures of wider scope
``browser``         a headless :class:`tests.browser.Browser` without any page; one for all tests of a module
==================  =====================================================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.browser import Browser, chromium_missing
from tests.browser import running as browser_running
from tests.pgbouncer import PgBouncer
from tests.services import Databases, Postgres, RabbitMQ, Servers, Service, Valkey, pgbouncer_missing, rabbitmq_missing

# On a busy machine any example may take long.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")
# Hundreds of processes are started: each would compile the package again for itself.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
BROKERS = [
    pytest.param("rabbitmq", marks=pytest.mark.rabbitmq),
    pytest.param("redis", marks=pytest.mark.redis),
]
NOT_RUN = pytest.StashKey[list[str]]()
#: Few and long tests. Side by side, these files go first: begun last, one of them would keep all others waiting.
LONG = (
    "tests/deploy/test_compose.py",
    "tests/docs/test_tutorial.py",
    "tests/worker/test_kills.py",
    "tests/soak",
    "tests/restarts",
    "tests/sweep",
    "tests/worker/test_canvas.py",
    "tests/machine",
    "tests/worker/test_outages.py",
    "tests/failures",
    "tests/benchmarks",
    "tests/dev",
    "tests/flower",
    "tests/migration",
    "tests/worker/test_canvas_outages.py",
    "tests/examples",
    "tests/external",
    "tests/order",
    "tests/receive",
    "tests/worker/test_observers.py",
    "tests/worker/test_malformed.py",
    "tests/worker/test_fetch.py",
    "tests/worker/test_popped.py",
    "tests/check",
)
#: Marker: the fixtures that need it, what it is called, why it can't be had.
NEEDED: dict[str, tuple[set[str], str, Callable[[], str | None]]] = {
    "rabbitmq": ({"rabbitmq_url", "own_rabbitmq"}, "RabbitMQ", rabbitmq_missing),
    "browser": ({"browser"}, "browser", chromium_missing),
    "pgbouncer": ({"pgbouncer"}, "pgbouncer", pgbouncer_missing),
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rabbitmq: needs RabbitMQ (marked by the fixtures)")
    config.addinivalue_line("markers", "pgbouncer: needs pgbouncer (marked by the fixture)")
    config.addinivalue_line("markers", "browser: needs chromium (marked by the fixture)")
    config.addinivalue_line("markers", "redis: runs on a Redis-protocol broker (marked by the fixtures)")
    given = [name for name in ("HARNESS_TEST_REDIS_URL", "RABBITMQ_URL") if name in os.environ]
    if given and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError(f"{' and '.join(given)}: one server can't serve tests side by side: make test JOBS=0")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without RabbitMQ, or a browser, the tests that need it are taken out, which the last lines say; not in CI."""
    items.sort(key=lambda item: next((n for n, begin in enumerate(LONG) if item.nodeid.startswith(begin)), len(LONG)))
    messages = []
    for marker, (fixtures, name, why_missing) in NEEDED.items():
        for item in items:
            if fixtures & set(getattr(item, "fixturenames", ())):
                item.add_marker(marker)
        missing = why_missing()
        needing = [item for item in items if item.get_closest_marker(marker)]
        if missing is None or not needing:
            continue
        messages.append(f"not run: {len(needing)} {name} tests: {missing}")
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]
    if messages and os.environ.get("CI") == "true":
        raise pytest.UsageError("\n".join(messages))
    config.stash[NOT_RUN] = messages
    if hasattr(config, "workeroutput"):
        config.workeroutput["not_run"] = messages


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Side by side, the tests are collected by pytest-xdist's workers; the last line is the controller's."""
    node.config.stash[NOT_RUN] = getattr(node, "workeroutput", {}).get("not_run", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for message in config.stash.get(NOT_RUN, []):
        terminalreporter.write_line(message, yellow=True)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    started = Servers()
    yield started
    started.close()


@pytest.fixture(scope="session")
def postgres_url(servers: Servers) -> str:
    return servers.postgres_url()


@pytest.fixture
def database(servers: Servers) -> Iterator[str]:
    url = servers.databases().make()
    yield url
    servers.databases().drop(url)


@pytest.fixture
def empty_database(servers: Servers) -> Iterator[str]:
    url = servers.databases().make_empty()
    yield url
    servers.databases().drop(url)


@pytest.fixture
def redis_url(servers: Servers) -> str:
    return servers.redis_url()


@pytest.fixture
def rabbitmq_url(servers: Servers) -> Iterator[str]:
    url = servers.rabbitmq_url()
    yield url
    servers.close_rabbitmq_url(url)


@pytest.fixture(params=BROKERS)
def broker_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def own_postgres(servers: Servers) -> Iterator[Postgres]:
    service = servers.own_postgres()
    yield service
    servers.discard(service)


@pytest.fixture
def own_database(own_postgres: Postgres) -> str:
    return Databases(own_postgres.url).make()


@pytest.fixture
def own_redis(servers: Servers) -> Iterator[Valkey]:
    service = servers.own_redis()
    yield service
    servers.discard(service)


@pytest.fixture
def own_rabbitmq(servers: Servers) -> Iterator[RabbitMQ]:
    service = servers.own_rabbitmq()
    yield service
    servers.discard(service)


@pytest.fixture
def pgbouncer(servers: Servers, database: str) -> Iterator[PgBouncer]:
    service = servers.own_pgbouncer(database)
    yield service
    servers.discard(service)


@pytest.fixture(params=BROKERS)
def own_broker(request: pytest.FixtureRequest) -> Service:
    service: Service = request.getfixturevalue(f"own_{request.param}")
    return service


@pytest.fixture(scope="module")
def _chromium() -> Iterator[Browser]:
    # Not for the whole session: while playwright runs, this thread has an event loop that other tests can't have.
    with browser_running() as browser:
        yield browser


@pytest.fixture
def browser(_chromium: Browser) -> Iterator[Browser]:
    yield _chromium
    _chromium.forget()
    _chromium.troubles.clear()
