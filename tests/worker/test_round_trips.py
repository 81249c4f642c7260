"""What a healthy job costs on its first delivery, as the server's own log tells it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.app.trace import build_tracer
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from harness import Harness
from harness.core.ids import uuid7
from harness.core.message import Message
from harness.store.database import with_driver
from harness.worker.trace import Reply, trace_job
from harness.worker.wire import Wire
from tests.services import Databases, Postgres, Servers

SEEN: list[str] = []


@pytest.fixture
def logging_postgres(servers: Servers) -> Iterator[Postgres]:
    service = servers.own_postgres(log_statement="all", log_line_prefix="%a|")
    yield service
    servers.discard(service)


@pytest.fixture
def app(logging_postgres: Postgres) -> Iterator[Celery]:
    url = Databases(logging_postgres.url).make()
    made = Celery("trips", broker="memory://", set_as_current=False)
    made.conf.update(harness_relay="off")
    harness = Harness(made, service="trips", database_url=f"{url}?application_name=counted")

    @harness.job(name="insert", shared=False)
    def insert(session: Session, n: int) -> None:
        SEEN.append(str(session.scalar(text("SELECT /* handler */ current_setting('lock_timeout')"))))

    made.finalize()
    task = made.tasks["insert"]
    task.__trace__ = build_tracer("insert", task, made.loader, "test", app=made)
    previous = Celery("previous", set_as_current=False)
    made.set_current()
    yield made
    harness.close()
    previous.set_current()


def deliver(job_id: str, **more: Any) -> Reply:
    headers = {"task": "insert", "id": job_id, "lang": "py", **more}
    message = Message(json.dumps([[], {"n": 1}, {}]).encode(), "application/json", "utf-8", headers, {}, "q")
    request: dict[str, Any] = dict(headers, delivery_info={})
    return trace_job("insert", job_id, request, Wire(message, redelivered=False), None)[1]


def statements(service: Postgres) -> list[str]:
    lines = service.log.read_text(errors="replace").splitlines()
    return [line.split("statement: ", 1)[1] for line in lines if line.startswith("counted|") and "statement: " in line]


def test_fence_handler_commit_in_three_round_trips_and_one_row(app: Celery, logging_postgres: Postgres) -> None:
    assert deliver(uuid7()).outcome == "completed"  # the first one also opens the connection
    before = len(statements(logging_postgres))
    assert deliver(uuid7()).outcome == "completed"
    fence, handler, commit = statements(logging_postgres)[before:]
    assert fence.startswith("BEGIN; INSERT INTO core.processed_jobs ")
    assert fence.count(";") == 1
    assert "/* handler */" in handler
    assert commit == "COMMIT"
    engine = create_engine(with_driver(Harness.of(app).settings.database_url))
    with engine.connect() as connection:
        tables = ("processed_jobs", "inbox", "dead_letters", "audit_log")
        rows = [connection.scalar(text(f"SELECT count(*) FROM core.{table}")) for table in tables]
    engine.dispose()
    assert rows == [2, 0, 0, 0]


def test_a_result_that_somebody_may_ask_for_costs_one_statement(app: Celery, logging_postgres: Postgres) -> None:
    """With a result backend, and not where the job's result is ignored."""
    app.conf.result_backend = "cache+memory://"
    for ignored, kept in ((True, []), (False, ["UPDATE core.processed_jobs SET result"])):
        deliver(uuid7(), ignore_result=ignored)
        before = len(statements(logging_postgres))
        job_id = uuid7()
        assert deliver(job_id, ignore_result=ignored).outcome == "completed"
        fence, _handler, *others, commit = statements(logging_postgres)[before:]
        assert (fence[:7], commit) == ("BEGIN; ", "COMMIT")
        assert [one[: len(kept[0])] for one in others] == kept if kept else others == []
        assert app.AsyncResult(job_id).state == ("PENDING" if ignored else "SUCCESS")


def test_the_handler_has_its_own_lock_timeout(app: Celery) -> None:
    SEEN.clear()
    deliver(uuid7())
    Harness.of(app).close()
    engine = create_engine(with_driver(Harness.of(app).settings.database_url), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("ALTER ROLE CURRENT_USER SET lock_timeout = '7s'"))
    engine.dispose()
    deliver(uuid7())
    assert SEEN == ["0", "7s"]
