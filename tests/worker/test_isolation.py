"""A database whose transactions are isolated more strictly by default: outcomes are the same."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from celery import Celery
from sqlalchemy.engine import make_url

from tests.services import run_sql
from tests.worker.running import State, Worker, until


@pytest.mark.redis
@pytest.mark.parametrize("broker_url", ["redis"], indirect=True)
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_copies_race_under_another_isolation_level(
    start_worker: Callable[..., Worker], sender: Celery, state: State, database: str, level: str
) -> None:
    run_sql(database, f"ALTER DATABASE {make_url(database).database} SET default_transaction_isolation = '{level}'")
    assert run_sql(database, "SHOW transaction_isolation") == [(level,)]
    worker = start_worker(concurrency=4)
    good = [f"good-{uuid4().hex}" for _ in range(15)]
    late = [f"late-{uuid4().hex}" for _ in range(5)]
    bad = [f"bad-{uuid4().hex}" for _ in range(10)]
    for job_id in good + late + bad:
        for _ in range(4):
            if job_id in good:
                sender.send_task("credit", kwargs={"pause": 0.02}, task_id=job_id)
            elif job_id in late:
                sender.send_task("fails_until", kwargs={"good": 3}, task_id=job_id)
            else:
                sender.send_task("fails", task_id=job_id)
    for job_id in good + late + bad:
        until(lambda job_id=job_id: state.settled(job_id), 60, job_id)
    assert all(state.effects(job_id) == 1 and state.fence(job_id) == "done" for job_id in good + late)
    assert all(state.effects(job_id) == 0 for job_id in bad)
    letters = {letter.job_id: letter for letter in state.letters()}
    assert letters.keys() == set(bad)
    assert {(letter.reason, letter.attempts) for letter in letters.values()} == {("exhausted", 5)}
    assert worker.alive
    assert "Traceback" not in worker.text()
