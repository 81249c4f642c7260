"""The servers of a run: started for it alone, with the durability of production, and removed afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2

from harness.dev.postgres import Postgres
from harness.dev.service import Service
from harness.dev.valkey import Valkey

#: fsync, synchronous_commit and full_page_writes are on: a job is done when its commit is on the disk.
SETTINGS = {"track_commit_timestamp": "on", "log_line_prefix": "%a|%p|", "synchronous_commit": "on"}

TABLES = """
    CREATE SCHEMA bench;
    CREATE TABLE bench.ledger (
        id bigserial PRIMARY KEY, account_id int NOT NULL, points int NOT NULL, sent double precision NOT NULL
    );
    CREATE TABLE bench.seen (job_id text PRIMARY KEY, seen_at timestamptz NOT NULL DEFAULT now());
"""


@contextmanager
def started(folder: Path, broker: str) -> Iterator[tuple[Postgres, Service]]:
    """PostgreSQL and the broker, `redis` or `rabbitmq`."""
    with Postgres(folder / "postgres", settings=SETTINGS) as postgres, _broker(broker, folder / "broker") as served:
        yield postgres, served


def _broker(name: str, folder: Path) -> Service:
    if name == "redis":
        return Valkey(folder, fsync=False)  # the append-only file reaches the disk once a second, as is usual
    from tests.rabbitmq import RabbitMQ

    return RabbitMQ(folder)


class Sql:
    """A connection of the benchmark's own, which commits each statement."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg2.connect(url, application_name="benchmark")
        self._connection.autocommit = True

    def rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def value(self, statement: str, *parameters: object) -> Any:
        return self.rows(statement, *parameters)[0][0]

    def close(self) -> None:
        self._connection.close()
