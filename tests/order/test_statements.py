"""What order costs, as the server's own log tells it: nothing without a key; two round trips with one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from celery import Celery

from harness import Harness
from harness.core.ids import uuid7
from harness.core.message import Message
from harness.worker.trace import Reply, trace_job
from harness.worker.wire import CONSUMER, DISPATCH, GENERATION, ORDERED, Wire
from tests.services import Postgres
from tests.worker.test_round_trips import app, logging_postgres, statements

__all__ = ["app", "logging_postgres"]


def relayed(app: Celery, key: str | None) -> Reply:
    """A job in the inbox, and the relay's copy of it at work here."""
    harness, job_id = Harness.of(app), uuid7()
    with harness.database.begin() as session:
        call = app.tasks["insert"].s(n=1)
        harness.enqueue(session, call, job_id=job_id, ordering_key=key)
        row = harness.store.inbox.find(session, _key(job_id))
    assert row is not None
    marks = {CONSUMER: row.consumer, GENERATION: str(row.generation), DISPATCH: "1"}
    marks |= {} if key is None else {ORDERED: key}
    headers = {"task": "insert", "id": job_id, "lang": "py"}
    body = json.dumps([[], {"n": 1}, {}]).encode()
    message = Message(body, "application/json", "utf-8", headers, {}, "q")
    wire = Wire(message, redelivered=False, marks=marks)
    request: dict[str, Any] = dict(headers, delivery_info={})
    return trace_job("insert", job_id, request, wire, None)[1]


def _key(job_id: str) -> Any:
    from harness.store.processed_jobs import Key

    return Key(job_id, "trips/insert")


@pytest.mark.parametrize("key", [None, "account 7"])
def test_one_statement_in_the_transaction_and_one_behind_it(
    app: Celery, logging_postgres: Postgres, key: str | None
) -> None:
    assert relayed(app, key).outcome == "completed"  # the first one also learns what tables there are
    before = len(statements(logging_postgres))
    assert relayed(app, key).outcome == "completed"
    found = statements(logging_postgres)[before:]
    work = found[next(n for n, one in enumerate(found) if one.startswith("BEGIN; INSERT")) :]
    # Of a statement of many lines the log has the first one in reach.
    kinds = ["pg_try_advisory_xact_lock" in one or one.startswith("WITH head AS") for one in work]
    usual = [one for one, of_order in zip(work, kinds, strict=True) if not of_order]
    assert [one.split()[0].rstrip(";") for one in usual] == ["BEGIN", "DELETE", "SELECT", "COMMIT"]
    assert sum(kinds) == (0 if key is None else 2)
    if key is not None:
        assert work[-1].startswith("WITH head AS"), "behind the commit, and outside of a transaction"
        assert work.index("COMMIT") == len(work) - 2
