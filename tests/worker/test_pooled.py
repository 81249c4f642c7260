"""PostgreSQL behind a pooler in transaction mode (pgbouncer): one effect, no setting left on a connection."""

from pathlib import Path

import pytest
from celery import Celery
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from harness.store.database import with_driver
from tests.worker.canvas import new, replay
from tests.worker.pooler import pooled
from tests.worker.running import ForkedWorker, State, until


@pytest.mark.parametrize("broker_url", [pytest.param("redis", marks=pytest.mark.redis)], indirect=True)
def test_a_worker_behind_a_pooler(broker_url: str, database: str, state: State, sender: Celery, tmp_path: Path) -> None:
    with pooled(database) as pooler:
        worker = ForkedWorker(broker_url, pooler.url, tmp_path / "worker.log", concurrency=3)
        worker.start()
        try:
            ids = {name: new() for name in ("good", "twice", "until", "dead", "killed", "due", "replayed")}
            switch = str(tmp_path / "switch")
            sender.send_task("credit", kwargs={"pause": 0.3}, task_id=ids["good"])
            for _ in range(3):
                sender.send_task("credit", kwargs={"pause": 0.3}, task_id=ids["twice"])
            sender.send_task("fails_until", kwargs={"good": 3}, task_id=ids["until"])
            sender.send_task("permanent", task_id=ids["dead"])
            sender.send_task("kills_child", kwargs={"times": 1}, task_id=ids["killed"])
            sender.send_task("credit", task_id=ids["due"], countdown=1)
            sender.send_task("last_try", kwargs={"switch": switch}, task_id=ids["replayed"])
            many = [new() for _ in range(30)]
            for one in many:
                sender.send_task("credit", kwargs={"pause": 0.02}, task_id=one)
            until(lambda: state.letter(ids["replayed"]), 60, "the letter")
            replay(pooler.url, ids["replayed"], state)
            for name, job_id in ids.items():
                until(lambda job_id=job_id: state.settled(job_id), 60, name)
                assert state.effects(job_id) == (0 if name == "dead" else 1), name
            until(lambda: all(state.fence(one) == "done" for one in many), 60, "all of them")
            assert {state.effects(one) for one in many} == {1}
            assert [letter.job_id for letter in state.letters() if letter.resolved_at is None] == [ids["dead"]]
        finally:
            worker.stop()
        assert pooler.switched > 20, "transactions go to other connections"
        nothing_stays(pooler.url, pooler.free.qsize())


def nothing_stays(url: str, connections: int) -> None:
    """Each connection of the pool is as it was when it was opened."""
    engine = create_engine(with_driver(url), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    query = text("SELECT pg_backend_pid(), name, setting FROM pg_settings WHERE source = 'session'")
    seen = set()
    with engine.connect() as connection:
        for _ in range(connections + 2):
            rows = connection.execute(query).all()
            found = {row.name for row in rows} - {"client_encoding", "application_name", "DateStyle", "TimeZone"}
            assert found == set()
            seen.add(connection.execute(text("SELECT pg_backend_pid()")).scalar())
    engine.dispose()
    assert len(seen) > 1
