"""Two copies of one job at the same moment, on two workers: one effect, and never two verdicts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery

from tests.worker.running import State, Worker, until

RACES = 220
PAUSE = 0.02
#: How many races must be proven ones: the second copy waited for the first one's fence.
OVERLAPPED = RACES // 2
#: On a busy machine fewer of a batch overlap: further batches are raced then, so many at most.
BATCHES = 4


def send_twice(sender: Celery, job_ids: list[str], folder: Path | None = None) -> None:
    with sender.producer_pool.acquire(block=True) as producer:
        for job_id in job_ids:
            switch = {"switch": str(folder / job_id)} if folder else {}
            for _ in range(2):
                sender.send_task("race", kwargs={"pause": PAUSE} | switch, task_id=job_id, producer=producer)


def both_copies_ended(workers: tuple[Worker, Worker], copies: int) -> bool:
    """Each copy writes one line when it has its outcome."""
    text = "".join(worker.text() for worker in workers)
    return sum(text.count(f" {name} job_id=") for name in ("completed", "duplicate", "stale", "dead")) >= copies


ENDS = """
SELECT f.job_id, f.state,
    (SELECT count(*) FROM ledger l WHERE l.job_id = f.job_id) AS effects,
    (SELECT count(*) FROM core.dead_letters d WHERE d.job_id = f.job_id) AS letters,
    (SELECT count(*) FROM core.inbox i WHERE i.job_id = f.job_id) AS waiting
FROM core.processed_jobs f WHERE f.job_id = ANY(:ids)
"""


def race(sender: Celery, workers: tuple[Worker, Worker], state: State, folder: Path | None = None) -> list[Any]:
    """Send each of RACES new jobs twice; returns how they ended."""
    for worker in workers:
        worker.log.write_bytes(b"")
    job_ids = [uuid4().hex for _ in range(RACES)]
    send_twice(sender, job_ids, folder)
    until(lambda: both_copies_ended(workers, 2 * RACES), 120, "both copies of each job ended")
    for worker in workers:
        assert " completed job_id=" in worker.text(), "both workers took part"
    rows = state.sql(ENDS, ids=job_ids)
    assert {row.job_id for row in rows} == set(job_ids)
    return rows


@pytest.fixture
def workers(start_worker: Callable[..., Worker]) -> tuple[Worker, Worker]:
    return start_worker(concurrency=2), start_worker(concurrency=2)


def test_both_copies_are_good(workers: tuple[Worker, Worker], sender: Celery, state: State) -> None:
    for _ in range(BATCHES):
        rows = race(sender, workers, state)
        assert {tuple(row)[1:] for row in rows} == {("done", 1, 0, 0)}
        if state.sql("SELECT count(*) FROM ledger WHERE note = '1'")[0][0] >= OVERLAPPED:
            return
    raise AssertionError(f"in {BATCHES * RACES} races too few copies overlapped")


def test_the_first_copy_fails_its_last_try(
    workers: tuple[Worker, Worker], sender: Celery, state: State, tmp_path: Path
) -> None:
    """It does so while the second one waits for the fence, and then commits."""
    (switches := tmp_path / "switches").mkdir()
    overlapped = second_commits = 0
    for _ in range(BATCHES):
        rows = race(sender, workers, state, switches)
        ends = {tuple(row)[1:] for row in rows}
        # Where the first copy's verdict came before the second copy, the job is dead and the second one stale.
        assert ends <= {("done", 1, 0, 0), ("dead", 0, 1, 0)}, ends
        overlapped += sum((switches / row.job_id).read_text() == "1" for row in rows)
        second_commits += sum(row.state == "done" for row in rows)
        if overlapped >= OVERLAPPED and second_commits >= RACES // 4:
            return
    raise AssertionError(
        f"in {BATCHES * RACES} races {overlapped} overlapped, {second_commits} second copies committed"
    )
