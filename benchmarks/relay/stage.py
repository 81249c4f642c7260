"""Servers, the inbox, and the processes that work on it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kombu import Queue
from sqlalchemy.orm import Session

from benchmarks.servers import Sql
from harness.dev.process import spawn
from harness.worker.harness import Harness

ROOT = Path(__file__).parents[2]
TABLE = "CREATE TABLE bench.started (number int NOT NULL, at double precision NOT NULL)"


class Stage:
    """One run's place. `harness` is the app's, for this process to enqueue with."""

    def __init__(self, sql: Sql, harness: Harness, job: Any, folder: Path) -> None:
        self.sql, self.harness, self.job, self.folder = sql, harness, job, folder
        self.queue = harness.app.conf.task_default_queue

    def enqueue(self, numbers: list[int], key: Callable[[int], str] | None = None) -> float:
        """Put jobs in with one transaction; when its commit was answered, in seconds since the epoch."""
        with Session(self.harness.database.engine) as session:
            calls = []
            for number in numbers:
                call = self.job.s(number=number)
                calls.append(call.set(ordering_key=key(number)) if key else call)
            self.harness.enqueue_many(session, calls)
            session.commit()
        return time.time()

    def fill(self, rows: int) -> None:
        """Have so many rows wait: copies of one, with ids of their own."""
        self.clear()
        self.enqueue([0])
        names = [name for (name,) in self.sql.rows(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'core' AND table_name = 'inbox'"
            " AND column_name NOT IN ('id', 'job_id') AND is_identity = 'NO'"
        )]  # fmt: skip
        columns = ", ".join(names)
        self.sql.rows(
            f"INSERT INTO core.inbox (job_id, {columns})"
            f" SELECT 'copy-' || n, {columns} FROM core.inbox, generate_series(2, %s) n",
            rows,
        )
        self.sql.rows("VACUUM ANALYZE core.inbox")

    def clear(self) -> None:
        """No rows, no messages."""
        self.sql.rows("TRUNCATE core.inbox, core.processed_jobs, bench.started")
        with self.harness.app.connection_for_write() as connection:
            bound = Queue(self.queue, routing_key=self.queue, durable=True)(connection.default_channel)
            bound.declare()
            bound.purge()

    @contextmanager
    def running(self, *words: str, ready: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """`celery -A benchmarks.apps.relayed WORDS` meanwhile."""
        log = self.folder / f"{words[0]}-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "celery", "-A", "benchmarks.apps.relayed", *words]
        with log.open("wb") as output:
            process = spawn(
                command, folder=ROOT, death_signal=signal.SIGTERM, output=output, env=os.environ | environment
            )
        try:
            deadline = time.monotonic() + 60
            while ready.encode() not in log.read_bytes():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{' '.join(words)} did not start:\n{log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.05)
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @contextmanager
    def worker(self, notify: bool) -> Iterator[None]:
        """A worker of two processes with its relay."""
        words = ("worker", "--loglevel=INFO", "--concurrency=2", "--without-gossip", "--without-mingle")
        with self.running(*words, ready=" ready.", BENCH_RELAY="worker", BENCH_NOTIFY="on" if notify else "off"):
            yield

    def started(self, jobs: int, seconds: float = 180.0) -> dict[int, float]:
        """When each job began, once all have."""
        deadline = time.monotonic() + seconds
        while (done := self.sql.value("SELECT count(*) FROM bench.started")) < jobs:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{done} of {jobs} jobs after {seconds:g} s")
            time.sleep(0.05)
        return dict(self.sql.rows("SELECT number, at FROM bench.started"))
