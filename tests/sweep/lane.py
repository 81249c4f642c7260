"""A worker with a service, a broker's place, a queue and fail points of its own, which goes through pair after pair."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from harness.testing import failpoints
from tests.soak.foreign import QUEUE, publish
from tests.sweep.left import Broker
from tests.sweep.order import Keyed
from tests.worker.running import ForkedWorker, State, client

DONE, DEAD, DISCARDED, PRUNED = "done", "dead", "discarded", "pruned"
#: Of a job `<id>-next`: done, after `<id>`.
DONE_NEXT = "done next"
#: Of a job with external effects: done, or a letter that says that it is not known; called once at most.
KNOWN_OR_NOT = "known or not"
#: Seconds that a worker may take to start, on a machine with much else to do.
STARTS = 240.0
#: Seconds that a copy waits for another one's fence.
FENCE_WAIT = 1.0


class Violated(AssertionError):
    """A promise is broken, or a job is stuck; the message has the evidence."""


class Lane:
    """`folder` keeps logs and fail points. Its worker is started again wherever it is found dead."""

    def __init__(self, name: str, broker: Broker, results: str, database: str, folder: Path) -> None:
        self.name, self.broker, self.database, self.folder = name, broker, database, folder
        self.points = folder / "points"
        self.points.mkdir(parents=True)
        self.log = folder / "worker.log"
        self.state = State(database)
        self.sender = client(broker.url)
        self.sender.conf.task_default_queue = name
        self.worker = ForkedWorker(
            broker.url,
            database,
            self.log,
            concurrency=1,
            service=name,
            task_default_queue=name,
            result_backend=results,
            harness_fence_wait=FENCE_WAIT,
            options=["-I", "tests.enqueue.jobs,tests.sweep.outside,tests.sweep.foreign"],
            environment={failpoints.VARIABLE: str(self.points), "CANVAS": "1"},
        )
        self.keyed = Keyed(database, name)
        #: Restarts of the worker that a fault has killed.
        self.restarts = 0

    def start(self) -> None:
        self.worker.start(STARTS)
        self.warm()

    def send(self, task: str, job: str, *, countdown: float | None = None, **kwargs: Any) -> None:
        """Send a job straight to the lane's queue."""
        self.sender.send_task(task, kwargs=kwargs, task_id=job, queue=self.name, countdown=countdown)

    def receive(self, message_id: str, body: bytes) -> None:
        """Send a message to the lane's source."""
        with self.sender.producer_pool.acquire(block=True) as producer:
            publish(producer, message_id, body, None)

    def warm(self) -> None:
        """A job that has child, relay and receiver open their connections, so that there is something to break."""
        from tests.sweep.jobs import received, retried_first_of_a_chain

        with self.disarmed():
            ends = retried_first_of_a_chain(self, f"warm-{uuid4().hex}") | received(self, f"warm-{uuid4().hex}")
            self.until(lambda: all(self.settled(job) for job in ends) and self.quiet(), 90, "the worker is warm")

    def until(self, condition: Callable[[], Any], seconds: float, what: str) -> Any:
        """Wait for `condition`, and keep the worker alive meanwhile. Violated after so many seconds."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if not self.worker.alive:
                began = time.monotonic()
                self.worker.kill()
                self.worker.start(STARTS)
                self.restarts += 1
                deadline += time.monotonic() - began
            if time.monotonic() > deadline:
                raise Violated(f"not within {seconds:g} s: {what}")
            time.sleep(0.05)
        return value

    def settled(self, job: str) -> bool:
        return self.state.settled(job)

    def quiet(self) -> bool:
        """Does the broker have nothing of this lane, not even unacknowledged?"""
        return self.left() == 0

    def left(self) -> int:
        """Messages for the worker and for the receiver, delivered or not."""
        return self.broker.left(self.name) + self.broker.left(QUEUE)

    @contextmanager
    def disarmed(self) -> Iterator[None]:
        """Put armed points aside, while what comes before is made."""
        armed = [*self.points.glob("*.armed")]
        for file in armed:
            file.rename(file.with_suffix(".aside"))
        try:
            yield
        finally:
            for file in armed:
                file.with_suffix(".aside").rename(file)

    @contextmanager
    def fence_held(self, job: str) -> Iterator[None]:
        """Hold the fence of `job`, uncommitted, as another copy does; rolled back at the end."""
        engine = create_engine(make_url(self.database).set(drivername="postgresql+psycopg2"))
        with engine.connect() as connection:
            insert = "INSERT INTO core.processed_jobs (job_id, consumer, state) VALUES (:id, :consumer, 'done')"
            connection.execute(text(insert), {"id": job, "consumer": f"{self.name}/credit"})
            yield
            connection.rollback()
        engine.dispose()

    def check(self, job: str, end: str) -> None:
        """Is the job's end as it must be? Violated if not."""
        state = self.state
        letters = state.sql("SELECT status, resolved_at FROM core.dead_letters WHERE job_id = :id", id=job)
        seen = (state.effects(job), state.fence(job), sum(row.resolved_at is None for row in letters))
        wanted: tuple[tuple[int, str | None, int], ...] = {
            DONE: ((1, "done", 0),),
            DONE_NEXT: ((1, "done", 0),),
            DEAD: ((0, "dead", 1),),
            DISCARDED: ((0, "dead", 0),),
            PRUNED: ((1, None, 0), (0, None, 0)),
            KNOWN_OR_NOT: ((1, "done", 0), (0, "dead", 1)),
        }[end]
        if seen not in wanted:
            raise Violated(f"{job}: effects, fence, open letters are {seen}, not {wanted[0]}")
        if end == KNOWN_OR_NOT:
            self._check_calls(job)
        if end == DONE_NEXT:
            self._check_order(job.removesuffix("-next"), job)
        if end == DISCARDED and [row.status for row in letters] != ["discarded"]:
            raise Violated(f"{job}: its letter is not discarded: {letters}")

    def _check_calls(self, job: str) -> None:
        calls = self.state.sql("SELECT count(*) FROM calls WHERE job_id = :id", id=job)[0][0]
        reasons = [row.reason for row in self.state.letters() if row.job_id == job]
        if calls > 1 or reasons not in ([], ["outcome_unknown"]) or (not reasons and not calls):
            raise Violated(f"{job}: called {calls} times, letters {reasons}")

    def _check_order(self, *jobs: str) -> None:
        rows = self.state.sql("SELECT job_id FROM ledger WHERE job_id = ANY(:jobs) ORDER BY id", jobs=[*jobs])
        if (order := [row.job_id for row in rows]) != [*jobs]:
            raise Violated(f"the jobs of a key had their effects in the order {order}, not {[*jobs]}")

    def ended(self, job: str, end: str) -> bool:
        """Has the job come to rest?"""
        if end == PRUNED:
            return self.state.fence(job) is None
        return self.settled(job) and not (end in (DONE, DONE_NEXT) and self.state.letter(job))

    def stop(self) -> None:
        """Stop in good order. Violated where something is left at the broker or in the inbox."""
        time.sleep(3)  # RabbitMQ counts what is unacknowledged once a second
        self.until(self.quiet, 45, "the last message is acknowledged")
        self.worker.stop()
        left = self.left()
        rows = self.state.sql("SELECT job_id FROM core.inbox WHERE service = :name", name=self.name)
        if left or rows:
            raise Violated(f"{self.name} has left {left} messages and the inbox rows of {[row.job_id for row in rows]}")

    def close(self) -> None:
        if self.worker.process is not None:
            self.worker.kill()
        self.sender.close()
        self.keyed.close()
        self.state.close()
