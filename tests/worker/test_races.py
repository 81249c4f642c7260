"""Two copies of one job at the same moment, on two workers: one effect, and never two verdicts."""

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from celery import Celery

from tests.worker.running import State, Worker, until

RACES = 220
PAUSE = 0.02
#: How many races must be proven ones: the second copy waited for the first one's fence.
OVERLAPPED = RACES // 2


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


def test_races(start_worker: Callable[..., Worker], sender: Celery, state: State, tmp_path: Path) -> None:
    workers = start_worker(concurrency=2), start_worker(concurrency=2)

    # Both copies are good.
    job_ids = [uuid4().hex for _ in range(RACES)]
    send_twice(sender, job_ids)
    until(lambda: both_copies_ended(workers, 2 * RACES), 90, "both copies of each job ended")
    rows = state.sql(ENDS, ids=job_ids)
    assert {row.job_id for row in rows} == set(job_ids)
    assert {tuple(row)[1:] for row in rows} == {("done", 1, 0, 0)}
    overlapped = state.sql("SELECT count(*) FROM ledger WHERE note = '1'")[0][0]
    assert overlapped >= OVERLAPPED

    # The first copy fails its last try while the second one waits for the fence, and then commits.
    job_ids = [uuid4().hex for _ in range(RACES)]
    switches = tmp_path / "switches"
    switches.mkdir()
    send_twice(sender, job_ids, switches)
    until(lambda: both_copies_ended(workers, 4 * RACES), 90, "both copies of each job ended")
    rows = state.sql(ENDS, ids=job_ids)
    assert {row.job_id for row in rows} == set(job_ids)
    ends = {tuple(row)[1:] for row in rows}
    # Where the first copy's verdict came before the second copy, the job is dead and the second one stale.
    assert ends <= {("done", 1, 0, 0), ("dead", 0, 1, 0)}, ends
    assert sum((switches / job_id).read_text() == "1" for job_id in job_ids) >= OVERLAPPED
    assert sum(row.state == "done" for row in rows) >= RACES // 4, "the second copy often commits"
    for worker in workers:
        assert worker.has_logged(" completed job_id="), "both workers took part"
