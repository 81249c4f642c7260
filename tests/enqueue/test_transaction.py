"""Real workers: sent with the commit and only then, once, whoever dies when."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from kombu import Queue

from harness.worker.publisher import Publisher
from harness.worker.relaying import relay_of
from tests.enqueue.conftest import Shop
from tests.worker.queues import messages
from tests.worker.running import ROOT, State, Worker, until
from tests.worker.wires import Wires

JOBS = ["-I", "tests.enqueue.jobs"]


@pytest.fixture
def worker(start_worker: Callable[..., Worker]) -> Worker:
    return start_worker(options=JOBS)


@pytest.fixture
def ids() -> Iterator[Callable[[str], str]]:
    mark = uuid4().hex[:8]
    return lambda name: f"{name}-{mark}"


def test_commit_rollback_death_and_time(
    worker: Worker,
    shop: Shop,
    state: State,
    ids: Callable[[str], str],
    broker_url: str,
    tmp_path: Path,
) -> None:
    """One worker for all that can become of an enqueue, side by side: most of it is waiting."""
    credit, enqueue = shop.credit, shop.harness.enqueue
    with shop.begin() as session:
        enqueue(session, credit.s(points=2), job_id=ids("committed"))
        enqueue(session, credit, job_id=ids("invalid-free"), points=3)
        enqueue(session, credit.s(), job_id=ids("delayed"), delay=timedelta(seconds=3))
        enqueue(session, credit.s(), job_id=ids("expired"), delay=3, expires=1)
        enqueue(session, credit.s(), job_id=ids("in time"), expires=600)
    began = time.monotonic()
    session = shop.session()
    enqueue(session, credit.s(points=2), job_id=ids("rolled back"))
    session.rollback()
    session.close()
    for when in ("before", "after"):
        command = [sys.executable, "-m", "tests.enqueue.killed", str(shop.state_url), ids(f"killed {when}"), when]
        assert subprocess.run(command, cwd=ROOT, timeout=60).returncode == -9
    with shop.begin() as session:
        enqueue(session, shop.first.s(), job_id=ids("chain"))
        enqueue(session, shop.first.s(fail=2), job_id=ids("chain of a job that fails"))
        enqueue(session, shop.first.s(die=str(tmp_path / "died")), job_id=ids("chain of a child that dies"))

    chains = [ids(f"chain{rest}") for rest in ("", " of a job that fails", " of a child that dies")]
    done = [ids(name) for name in ("committed", "invalid-free", "delayed", "in time", "killed after")]
    done += chains + [f"{chain}-next" for chain in chains]
    until(lambda: all(state.settled(job) for job in [*done, ids("expired")]), 60, "all are settled")
    assert time.monotonic() - began >= 2.5
    assert {job: (state.effects(job), state.fence(job)) for job in done} == dict.fromkeys(done, (1, "done"))
    assert state.letter(ids("expired")).reason == "expired"
    assert state.effects(ids("expired")) == 0
    for never in ("rolled back", "killed before"):
        assert (state.fence(ids(never)), state.inbox(ids(never))) == (None, None)
    assert messages(broker_url) == 0
    assert len(state.letters()) == 1


def test_one_job_by_two_ways_has_one_effect(
    worker: Worker,
    shop: Shop,
    state: State,
    ids: Callable[[str], str],
    sender: object,
) -> None:
    """Enqueued and sent with the same id; enqueued again while at work, when done and with other arguments."""
    from celery import Celery

    from harness import ConflictingJob

    assert isinstance(sender, Celery)
    job = ids("both")
    with shop.begin() as session:
        shop.harness.enqueue(session, shop.credit.s(points=1), job_id=job)
        sender.send_task("credit", kwargs={"points": 1}, task_id=job)
    said = ids("said otherwise, and failing once")
    with shop.begin() as session:
        shop.harness.enqueue(session, shop.first.s(fail=1), job_id=said, delay=600)
    sender.send_task("first", args=("", 1), task_id=said)
    at_work = ids("at work")
    with shop.begin() as session:
        shop.harness.enqueue(session, shop.slow.s(pause=4.0), job_id=at_work)
    until(lambda: state.sql("SELECT 1 FROM pg_stat_activity WHERE query ~ 'INSERT INTO ledger'"), 30, "it is at work")
    until(lambda: state.sql("SELECT 1 FROM core.inbox WHERE job_id = :id AND leased_until > now()", id=at_work))
    began = time.monotonic()
    with shop.begin() as session:
        assert shop.harness.enqueue(session, shop.slow.s(pause=4.0), job_id=at_work).state == "waiting"
    assert time.monotonic() - began < 2, "it waited for the handler"
    until(lambda: state.settled(job) and state.settled(at_work) and state.settled(said), 30)
    with shop.begin() as session:
        assert shop.harness.enqueue(session, shop.credit.s(points=1), job_id=job).state == "done"
        with pytest.raises(ConflictingJob, match="other arguments"):
            shop.harness.enqueue(session, shop.credit.s(points=2), job_id=job)
    assert (state.effects(job), state.effects(at_work), state.effects(said)) == (1, 1, 1)
    assert (state.inbox(job), state.letters()) == (None, [])


def test_other_languages(worker: Worker, shop: Shop, state: State, ids: Callable[[str], str]) -> None:
    """The SQL function: a job like any other, and a letter where its arguments do not fit."""
    good, bad, late = ids("good"), ids("bad"), ids("late")
    sql = "SELECT * FROM core.enqueue('tests', 'credit', 'jobs', kwargs => CAST(:kwargs AS json), job_id => :id"
    state.sql(sql + ", tenant => 'acme', correlation_id => 'order 7')", kwargs='{"points": 4}', id=good)
    state.sql(sql + ")", kwargs='{"points": "many"}', id=bad)
    state.sql(sql + ", expires => now() - interval '1 s')", kwargs="{}", id=late)
    until(lambda: all(state.settled(job) for job in (good, bad, late)), 30)
    assert state.effects(good) == 1
    assert (state.letter(bad).reason, state.letter(late).reason) == ("invalid_payload", "expired")


def test_delay_in_a_handler_warns_once(
    worker: Worker,
    shop: Shop,
    state: State,
    ids: Callable[[str], str],
) -> None:
    jobs = [ids(f"dual {n}") for n in range(6)]
    with shop.begin() as session:
        for job in jobs:
            shop.harness.enqueue(session, shop.dual.s(), job_id=job)
    until(lambda: all(state.settled(job) for job in jobs), 30)
    told = re.findall(r".*jobs.py:\d+: DualWrite.*harness\.enqueue.*", worker.text())
    assert 1 <= len(told) <= worker.concurrency, worker.text()[-3000:]


@pytest.mark.parametrize("broker_url", [pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)], indirect=True)
def test_a_thousand_that_the_broker_lost(
    start_worker: Callable[..., Worker], shop: Shop, state: State, broker_url: str
) -> None:
    """They were sent, and somebody emptied the queue: all of them run when their leases are over, each once."""
    shop.app.conf.broker_url = broker_url
    with shop.begin() as session:
        shop.harness.enqueue_many(session, [shop.credit.s() for _ in range(1000)])
    publisher, relay = Publisher(shop.app), relay_of(shop.harness)
    relay.publish, relay.lease = publisher, 8.0
    wires = Wires(broker_url)
    Queue("jobs", channel=wires.channel, durable=True, routing_key="jobs").declare()
    for _ in range(10):  # batches of a hundred
        relay.step()
    publisher.close()
    assert messages(broker_url) == 1000
    assert {row.dispatches for row in shop.rows()} == {1}
    wires.channel.queue_purge("jobs")
    wires.close()
    start_worker(options=JOBS, worker_prefetch_multiplier=25)
    until(lambda: not state.sql("SELECT 1 FROM core.inbox LIMIT 1"), 120, "all have run")
    found = state.sql("SELECT state, count(*) FROM core.processed_jobs GROUP BY state")
    assert [tuple(row) for row in found] == [("done", 1000)]
    until(lambda: messages(broker_url) == 0, 60, "the queue is empty")
