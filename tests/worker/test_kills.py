"""SIGKILL at every step: of a child, and of the whole worker. In the end there is one effect, and never a half."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from celery import Celery

from harness.testing import failpoints
from tests.worker.queues import messages
from tests.worker.running import State, Worker, until

Case = tuple[str, str, str, dict[str, int]]
WORK = ("before_fence", "after_fence", "before_commit", "after_commit")
VERDICT = ("before_verdict", "verdict_before_commit", "verdict_after_commit")
RELAY = ("relay_leased", "relay_published")
RETRIED = ("fails_until", {"good": 2})
#: Its child dies without a fail point; the point is then met in the verdict that the parent has a child record.
DIES = ("kills_child", {"times": 1})
#: (point, or points one after the other; who is killed there; task; its arguments): the job comes to each point once,
#: and must succeed in the end.
CASES: list[Case] = [
    *((point, "process", "credit", {}) for point in WORK),
    *((point, "process", *RETRIED) for point in (*VERDICT, *RELAY)),
    *((point, "process", *DIES) for point in VERDICT),
    *((point, "worker", "credit", {}) for point in (*WORK, "before_ack", "after_ack")),
    *((point, "worker", *RETRIED) for point in (*VERDICT, *RELAY)),
    *((point, "worker", *DIES) for point in VERDICT[1:]),
    # The second delivery is one that the broker marks, which is counted before it works.
    ("after_fence before_count", "worker", "credit", {}),
    ("before_commit after_count", "worker", "credit", {}),
]

#: Workers side by side: they wait, for the broker and for Celery, more than they work.
LANES = 3

#: One statement, so one snapshot: an effect without its `done` fence, the reverse, or two effects.
BROKEN = """
SELECT job_id, effects, state FROM (SELECT job_id, count(*) AS effects FROM ledger GROUP BY job_id) l
FULL JOIN core.processed_jobs f USING (job_id)
WHERE coalesce(effects, 0) <> CASE WHEN state = 'done' THEN 1 ELSE 0 END
"""


@contextmanager
def watched(state: State) -> Iterator[None]:
    """Look all the time whether each effect has its fence and each fence its effect."""
    broken: list[object] = []
    looks = 0
    over = threading.Event()

    def look() -> None:
        nonlocal looks
        while not over.wait(0.01):
            broken.extend(state.sql(BROKEN))
            looks += 1

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert looks > 100
    assert broken == []


class Lane:
    """A worker with its own service, queue and fail points."""

    def __init__(self, name: str, start_worker: Callable[..., Worker], sender: Celery, folder: Path) -> None:
        self.name, self.sender, self.points = name, sender, folder / name
        self.points.mkdir()
        self.worker = start_worker(
            service=name, task_default_queue=name, environment={failpoints.VARIABLE: str(self.points)}
        )

    def run(self, case: Case, state: State) -> str:
        """Send a job, let the point kill, start the worker again where it is dead; returns the id of the ended job."""
        points, who, task, kwargs = case
        job_id = uuid4().hex
        armed = [failpoints.arm(self.points, point, f"kill_{who}", job_id) for point in points.split()]
        self.sender.send_task(task, kwargs=kwargs, task_id=job_id, queue=self.name)
        for point in armed:
            until(lambda point=point: point.fired, 30, f"{case} fires at {point.point}")
            if who == "worker":
                until(lambda: not self.worker.alive, 10, f"{case} kills the worker")
                self.worker.kill()
                self.worker.start()
        until(lambda: state.settled(job_id), 60, f"{case} ends")
        return job_id

    def drain(self, broker_url: str) -> None:
        """Stop; nothing is left with the broker."""
        self.worker.stop()
        if messages(broker_url, self.name):
            # A copy was held, for the child that was to record its end had died: it went back to the broker.
            self.worker.start()
            until(lambda: messages(broker_url, self.name) == 0, 20, "the queue is drained")
            self.worker.stop()
        assert messages(broker_url, self.name) == 0


def test_kills(
    start_worker: Callable[..., Worker], sender: Celery, state: State, tmp_path: Path, broker_url: str
) -> None:
    def drive(number: int) -> tuple[Lane, list[tuple[Case, str]]]:
        lane = Lane(f"lane{number}", start_worker, sender, tmp_path)
        return lane, [(case, lane.run(case, state)) for case in CASES[number::LANES]]

    with watched(state), ThreadPoolExecutor(LANES) as threads:
        driven = list(threads.map(drive, range(LANES)))
    ended = [pair for _, pairs in driven for pair in pairs]
    assert len(ended) == len(CASES)
    for case, job_id in ended:
        assert (state.fence(job_id), state.effects(job_id)) == ("done", 1), case
        assert state.letter(job_id) is None, case
    for lane, _ in driven:
        lane.worker.terminate()
    for lane, _ in driven:
        lane.drain(broker_url)
    assert state.letters() == []
    assert state.sql("SELECT 1 FROM core.inbox") == []
