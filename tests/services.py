"""The servers that the tests run on: started when first asked for, shared, ended by pid.

A test that stops or kills a server takes one of its own: ``own_postgres`` and so on in conftest.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

import psycopg2
from psycopg2 import sql
from redis import Redis

from harness.dev.postgres import Postgres
from harness.dev.process import ServiceError
from harness.dev.service import Service
from harness.dev.valkey import Valkey
from tests import pgbouncer
from tests.rabbitmq import HOW_TO_GET, RabbitMQ, find_server

__all__ = ["Databases", "Postgres", "RabbitMQ", "Servers", "Service", "Valkey", "run_sql"]

REDIS_DATABASES = 256
S = TypeVar("S", bound=Service)


def rabbitmq_missing() -> str | None:
    """Why RabbitMQ tests can't run and how to change that, or None."""
    return None if os.environ.get("RABBITMQ_URL") or find_server() else HOW_TO_GET


def pgbouncer_missing() -> str | None:
    """The same of pgbouncer."""
    return None if pgbouncer.find_pgbouncer() else pgbouncer.HOW_TO_GET


def with_database(url: str, name: str) -> str:
    """The same server's URL for another database (or virtual host)."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def run_sql(url: str, statement: str | sql.Composable, *parameters: object) -> list[tuple[object, ...]]:
    """One statement in its own connection, outside a transaction; its rows."""
    with closing(psycopg2.connect(url)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []


class Databases:
    """Fresh databases on one server, copied from a template that has the harness's schema."""

    _numbers = itertools.count(1)

    def __init__(self, url: str) -> None:
        self._url = url
        self._template: str | None = None

    def make(self) -> str:
        """A new, migrated database's URL."""
        if self._template is None:
            from harness.store.migrate import upgrade

            self._template = self._create("template0")
            upgrade(with_database(self._url, self._template))
        return with_database(self._url, self._create(self._template))

    def make_empty(self) -> str:
        """A new database without a schema."""
        return with_database(self._url, self._create("template0"))

    def drop(self, url: str) -> None:
        """Remove a database, with whoever is still connected."""
        name = urlsplit(url).path.lstrip("/")
        run_sql(self._url, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def close(self) -> None:
        """Remove the template."""
        if self._template is not None:
            self.drop(with_database(self._url, self._template))

    def _create(self, template: str) -> str:
        name = f"harness_test_{os.getpid()}_{next(self._numbers)}"
        command = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        run_sql(self._url, command)
        return name


class Servers:
    """What one test session has started."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="harness-tests-"))
        self._running: list[Service] = []
        self._shared: dict[str, Service] = {}
        self._databases: Databases | None = None
        self._numbers = itertools.count(1)

    def own_postgres(self, **settings: str) -> Postgres:
        """A started PostgreSQL for one test alone; without fsync."""
        return self._start(lambda folder: Postgres(folder, fsync=False, settings=settings))

    def own_redis(self) -> Valkey:
        """A started Redis-protocol broker for one test alone."""
        return self._start(lambda folder: Valkey(folder, fsync=False, databases=REDIS_DATABASES))

    def own_rabbitmq(self, settings: str = "") -> RabbitMQ:
        """A started RabbitMQ for one test alone; `settings`: its application's environment, as Erlang terms."""
        return self._start(lambda folder: RabbitMQ(folder, settings))

    def own_pgbouncer(self, url: str) -> pgbouncer.PgBouncer:
        """A started pgbouncer in front of the database `url`, for one test alone."""
        return self._start(lambda folder: pgbouncer.PgBouncer(folder, url))

    def discard(self, service: Service) -> None:
        """End a server and remove its data."""
        if isinstance(service, RabbitMQ):
            service.kill()  # its good order takes six seconds
        service.stop()
        self._running.remove(service)
        shutil.rmtree(service.folder)

    def postgres_url(self) -> str:
        """A superuser's URL of the shared server."""
        return os.environ.get("HARNESS_TEST_DATABASE_URL") or self._share("postgres", self.own_postgres).url

    def databases(self) -> Databases:
        """Fresh databases on the shared server."""
        if self._databases is None:
            self._databases = Databases(self.postgres_url())
        return self._databases

    def redis_url(self) -> str:
        """An emptied database of the shared server: another one at each call."""
        if url := os.environ.get("HARNESS_TEST_REDIS_URL"):
            return url
        number = next(self._numbers) % REDIS_DATABASES
        url = with_database(self._share("redis", self.own_redis).url, str(number))
        with Redis.from_url(url) as client:
            client.flushdb()
        return url

    def rabbitmq_url(self) -> str:
        """A fresh virtual host of the shared server; with RABBITMQ_URL that one, which is not emptied."""
        if url := os.environ.get("RABBITMQ_URL"):
            return url
        server = self._share("rabbitmq", self.own_rabbitmq)
        assert isinstance(server, RabbitMQ)
        return server.add_vhost(f"test{next(self._numbers)}")

    def rabbitmq_api(self) -> str:
        """The URL of the management API of the shared server, with its user; of RABBITMQ_URL's at the usual port."""
        server = self._shared.get("rabbitmq")
        parts = urlsplit(server.url if isinstance(server, RabbitMQ) else os.environ["RABBITMQ_URL"])
        port = server.http_port if isinstance(server, RabbitMQ) else 15672
        return f"http://{parts.username}:{parts.password}@{parts.hostname}:{port}/api/"

    def close_rabbitmq_url(self, url: str) -> None:
        """Remove what ``rabbitmq_url`` made."""
        server = self._shared.get("rabbitmq")
        if isinstance(server, RabbitMQ) and server.running:
            server.remove_vhost(urlsplit(url).path.lstrip("/"))

    def close(self) -> None:
        """End everything."""
        if self._databases is not None and "postgres" not in self._shared:
            self._databases.close()
        for service in reversed(self._running[:]):
            self.discard(service)
        shutil.rmtree(self._folder)

    def _share(self, name: str, make: Callable[[], Service]) -> Service:
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def _start(self, make: Callable[[Path], S]) -> S:
        for attempt in range(3):
            service = make(self._folder / f"server{next(self._numbers)}")
            try:
                service.start()
            except ServiceError:
                # A port that was free a moment ago may be another test's by now.
                if attempt == 2:
                    raise
                continue
            self._running.append(service)
            return service
        raise AssertionError  # the last attempt returns or raises
