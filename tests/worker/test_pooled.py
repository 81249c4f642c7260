"""PostgreSQL behind a pooler in transaction mode (pgbouncer): one effect, no setting left on a connection."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from celery import Celery
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from harness.store.database import with_driver
from tests.pgbouncer import PgBouncer
from tests.worker.canvas import new, replay
from tests.worker.pooler import pooled
from tests.worker.running import ForkedWorker, State, until

REDIS = pytest.mark.parametrize("broker_url", [pytest.param("redis", marks=pytest.mark.redis)], indirect=True)


@REDIS
def test_a_worker_behind_a_pooler(broker_url: str, database: str, state: State, sender: Celery, tmp_path: Path) -> None:
    with pooled(database) as pooler:
        worker = ForkedWorker(broker_url, pooler.url, tmp_path / "worker.log", concurrency=3)
        worker.start()
        try:
            jobs_of_every_kind(pooler.url, state, sender, tmp_path)
        finally:
            worker.stop()
        assert pooler.switched > 20, "transactions go to other connections"
        nothing_stays(pooler.url, pooler.free.qsize())


@REDIS
def test_a_worker_behind_pgbouncer(
    broker_url: str, pgbouncer: PgBouncer, state: State, sender: Celery, tmp_path: Path
) -> None:
    """More processes than it has connections; and it is started again under them."""
    worker = ForkedWorker(broker_url, pgbouncer.url, tmp_path / "worker.log", concurrency=5)
    worker.start()
    try:
        jobs_of_every_kind(pgbouncer.url, state, sender, tmp_path)
        served = {row["database"]: row for row in pgbouncer.show("stats")}[pgbouncer.database]
        assert served["total_xact_count"] > 100
        nothing_stays(pgbouncer.url, 3)
        pgbouncer.restart()
        last = new()
        sender.send_task("credit", task_id=last)
        until(lambda: state.settled(last), 60, "a job after its restart")
    finally:
        worker.stop()


def jobs_of_every_kind(url: str, state: State, sender: Celery, folder: Path) -> None:
    """Each has its one effect, or its letter. `url`: through the pooler."""
    ids = {name: new() for name in ("good", "twice", "until", "dead", "killed", "due", "replayed")}
    sender.send_task("credit", kwargs={"pause": 0.3}, task_id=ids["good"])
    for _ in range(3):
        sender.send_task("credit", kwargs={"pause": 0.3}, task_id=ids["twice"])
    sender.send_task("fails_until", kwargs={"good": 3}, task_id=ids["until"])
    sender.send_task("permanent", task_id=ids["dead"])
    sender.send_task("kills_child", kwargs={"times": 1}, task_id=ids["killed"])
    sender.send_task("credit", task_id=ids["due"], countdown=1)
    sender.send_task("last_try", kwargs={"switch": str(folder / "switch")}, task_id=ids["replayed"])
    many = [new() for _ in range(30)]
    for one in many:
        sender.send_task("credit", kwargs={"pause": 0.02}, task_id=one)
    until(lambda: state.letter(ids["replayed"]), 60, "the letter")
    replay(url, ids["replayed"], state)
    for name, job_id in ids.items():
        until(lambda job_id=job_id: state.settled(job_id), 60, name)
        assert state.effects(job_id) == (0 if name == "dead" else 1), name
    until(lambda: all(state.fence(one) == "done" for one in many), 60, "all of them")
    assert {state.effects(one) for one in many} == {1}
    assert [letter.job_id for letter in state.letters() if letter.resolved_at is None] == [ids["dead"]]


def nothing_stays(url: str, connections: int) -> None:
    """Each connection of the pool is as it was when it was opened."""
    engine = create_engine(with_driver(url), poolclass=NullPool)
    query = text("SELECT pg_backend_pid() AS pid, array(SELECT name FROM pg_settings WHERE source = 'session') AS set")
    usual = {"client_encoding", "application_name", "DateStyle", "TimeZone"}
    with ExitStack() as stack:
        # Each in a transaction of its own, all at once: so every connection has its turn.
        rows = [stack.enter_context(engine.connect()).execute(query).one() for _ in range(connections)]
    engine.dispose()
    assert {name for row in rows for name in row.set} <= usual
    assert len({row.pid for row in rows}) == connections > 1
