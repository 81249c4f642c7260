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
``servers``         the session's :class:`Servers`, for fixtures of wider scope
==================  =====================================================================================
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.services import Databases, Postgres, RabbitMQ, Servers, Service, Valkey, rabbitmq_missing

BROKERS = [
    pytest.param("rabbitmq", marks=pytest.mark.rabbitmq),
    pytest.param("redis", marks=pytest.mark.redis),
]
NOT_RUN = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rabbitmq: needs RabbitMQ (marked by the fixtures)")
    config.addinivalue_line("markers", "redis: runs on a Redis-protocol broker (marked by the fixtures)")
    given = [name for name in ("HARNESS_TEST_REDIS_URL", "RABBITMQ_URL") if name in os.environ]
    if given and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError(f"{' and '.join(given)}: one server can't serve tests side by side: make test JOBS=0")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without RabbitMQ its tests are taken out, which the last line says; in CI that is an error."""
    for item in items:
        if {"rabbitmq_url", "own_rabbitmq"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.rabbitmq)
    missing = rabbitmq_missing()
    without = [item for item in items if item.get_closest_marker("rabbitmq") is None]
    if missing is None or len(without) == len(items):
        return
    message = f"not run: {len(items) - len(without)} RabbitMQ tests: {missing}"
    if os.environ.get("CI") == "true":
        raise pytest.UsageError(message)
    config.stash[NOT_RUN] = message
    if hasattr(config, "workeroutput"):
        config.workeroutput["not_run"] = message
    config.hook.pytest_deselected(items=[item for item in items if item not in without])
    items[:] = without


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Side by side, the tests are collected by pytest-xdist's workers; the last line is the controller's."""
    if message := getattr(node, "workeroutput", {}).get("not_run"):
        node.config.stash[NOT_RUN] = message


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if message := config.stash.get(NOT_RUN, None):
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


@pytest.fixture(params=BROKERS)
def own_broker(request: pytest.FixtureRequest) -> Service:
    service: Service = request.getfixturevalue(f"own_{request.param}")
    return service
