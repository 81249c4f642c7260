"""Real workers and relays on both brokers: a short run of `make order`, a planted fault, blocked keys, woken relays."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.orm import Session

from tests.order.load import Producer
from tests.order.run import TABLES, check, order
from tests.services import Servers
from tests.worker.conftest import start_worker, state
from tests.worker.forked import celery
from tests.worker.running import ROOT, State, Worker, until

__all__ = ["start_worker", "state"]
CAPPED_RUNS = "CREATE TABLE capped_runs (id bigserial PRIMARY KEY, job text NOT NULL, beside int NOT NULL)"
BROKERS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("rabbitmq", "redis")]


@pytest.mark.parametrize("kind", BROKERS)
def test_a_short_run(servers: Servers, kind: str, tmp_path: Path) -> None:
    verdict = order(servers, kind, tmp_path, jobs=240, keys=8, seed=3, pause=(0.2, 1.0), longest=400)
    assert verdict.line == "order: jobs=240 keys=8 violations=0 lost=0 doubled=0", verdict
    assert verdict.runs >= 240
    assert sum(verdict.chaos.values()) > 0


def test_a_planted_fault_is_found(servers: Servers, tmp_path: Path) -> None:
    """Neither relay nor copies look whose turn it is."""
    verdict = order(servers, "redis", tmp_path, jobs=100, keys=4, seed=3, pause=(99, 99), longest=120, fault="both")
    assert len(verdict.violations) > 5, verdict
    assert not verdict.good
    assert "violations=0" not in verdict.line


def test_the_checker_finds_what_is_lost_and_doubled(database: str) -> None:
    state = State(database)
    state.sql(TABLES)
    state.sql("INSERT INTO order_runs (key, number, seen) VALUES ('key-000', 0, 0), ('key-000', 2, 1)")
    state.sql("INSERT INTO order_effects (key, number) VALUES ('key-000', 0), ('key-000', 0), ('key-000', 2)")
    verdict = check(state, 3, 1)
    assert verdict.line == "order: jobs=3 keys=1 violations=1 lost=1 doubled=1"
    state.close()


@pytest.fixture
def producer(database: str) -> Iterator[Producer]:
    made = Producer(database)
    yield made
    made.close()


def harness_command(database: str, broker: str, *arguments: str) -> Any:
    """`celery -A tests.worker.app harness …`; its output as JSON."""
    settings = {"BROKER_URL": broker, "HARNESS_DATABASE_URL": database}
    done = celery(["-A", "tests.worker.app", "harness", *arguments, "--json"], os.environ | settings, ROOT)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    return json.loads(done.stdout)


def test_woken_blocked_and_let_go(
    start_worker: Callable[..., Worker], producer: Producer, state: State, database: str, broker_url: str
) -> None:
    """With a poll of 20 s: a key goes from one to the next at once, stops behind a dead job, and goes on after that."""
    state.sql(TABLES)
    start_worker(options=["-I", "tests.order.jobs"], harness_relay_poll=20.0)
    key = f"account {uuid4().hex[:6]}"
    began = time.monotonic()
    with Session(producer.engine) as session, session.begin():
        for number in range(12):
            producer.put(session, key, number)
        producer.harness.enqueue(session, producer.blocking.s(key=key), job_id=f"{key} dies", ordering_key=key)
        for number in range(12, 15):
            producer.put(session, key, number)
    until(lambda: state.letter(f"{key} dies") is not None, 120, "the one that blocks is dead")
    # By polling alone: a poll for each of the twelve.
    assert time.monotonic() - began < 100
    [blocked] = harness_command(database, broker_url, "inbox", "--blocked")
    assert (blocked["ordering_key"], blocked["job_id"], blocked["waiting"]) == (key, f"{key} dies", 3)
    until(lambda: state.sql("SELECT 1 FROM core.inbox WHERE relay_error IS NOT NULL"), 60, "they stand back")
    waits = {row["job_id"]: row["waits_for"] for row in harness_command(database, broker_url, "inbox")}
    assert waits[f"{key}-12"] == f"blocked by letter {blocked['letter_id']}"
    shown = harness_command(database, broker_url, "dead-letters", "show", str(blocked["letter_id"]))
    assert shown["blocks"] is True
    assert state.sql("SELECT count(*) FROM order_effects")[0][0] == 12
    harness_command(database, broker_url, "dead-letters", "discard", str(blocked["letter_id"]), "--reason", "not owed")
    until(lambda: state.sql("SELECT count(*) FROM order_effects")[0][0] == 15, 60, "the key goes on")
    assert harness_command(database, broker_url, "inbox", "--blocked") == []
    seen = [tuple(row) for row in state.sql("SELECT number, seen FROM order_runs ORDER BY id")]
    assert seen == [(number, number) for number in range(15)]


def test_one_at_a_time_without_waiting_for_polls(
    start_worker: Callable[..., Worker], producer: Producer, state: State, broker_url: str
) -> None:
    """Fifty jobs of which one may be in flight, with a poll of 5 s: the end of each has the relay send the next."""
    state.sql(CAPPED_RUNS)
    start_worker(options=["-I", "tests.order.capped"], harness_relay_poll=5.0)
    with Session(producer.engine) as session, session.begin():
        producer.harness.enqueue_many(session, [producer.alone.s() for _ in range(50)])
    until(lambda: state.sql("SELECT 1 FROM capped_runs"), 60, "the first has run")
    began = time.monotonic()
    until(lambda: state.sql("SELECT count(*) FROM capped_runs")[0][0] == 50, 120, "all have run")
    # By polling alone: 245 s.
    assert time.monotonic() - began < 60
    assert tuple(state.sql("SELECT max(beside), count(DISTINCT job) FROM capped_runs")[0]) == (0, 50)


def test_two_transactions_of_one_key_at_once(
    start_worker: Callable[..., Worker], producer: Producer, state: State, broker_url: str
) -> None:
    """Neither waits for the other; the one that began later and commits first is held, and the order is fixed."""
    state.sql(TABLES)
    start_worker(options=["-I", "tests.order.jobs"])
    key = f"account {uuid4().hex[:6]}"
    with Session(producer.engine) as first, Session(producer.engine) as second:
        for session in (first, second):
            session.connection().exec_driver_sql("SET LOCAL lock_timeout = '300ms'")
        producer.put(first, key, 0)
        producer.put(second, key, 2)
        producer.put(first, key, 1)
        second.commit()
        with Session(producer.engine) as third, third.begin():  # begun after that commit
            producer.put(third, key, 3)
        until(lambda: state.sql("SELECT 1 FROM core.inbox WHERE relay_error LIKE 'held by%'"), 30, "it is held")
        assert state.sql("SELECT count(*) FROM order_runs")[0][0] == 0
        first.commit()
    until(lambda: state.sql("SELECT count(*) FROM order_effects")[0][0] == 4, 60)
    assert [row.number for row in state.sql("SELECT number FROM order_runs ORDER BY id")] == [0, 1, 2, 3]
