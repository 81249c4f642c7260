"""One variant under measurement: its producer, its worker, and what the server says of its jobs."""

import importlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import Worker, used
from benchmarks.servers import Sql
from benchmarks.stats import quantile

NAMES = ("unfenced", "handwritten", "harness")
#: At the start and the end of a backlog not all processes are at work: that much of it, at each end, does not count.
EDGE = 0.05
PATIENCE = 120.0


@dataclass(frozen=True)
class Sample:
    """One backlog worked off: jobs per second, bytes of WAL and seconds of processor time per job."""

    rate: float
    wal: float
    parent: float
    children: float
    server: float

    @property
    def processor(self) -> float:
        return self.parent + self.children + self.server


class Variant:
    """A worker that waits, and the means to give it work."""

    def __init__(self, name: str, folder: Path, sql: Sql, concurrency: int) -> None:
        self.name, self.sql = name, sql
        module = importlib.import_module(f"benchmarks.apps.{name}")
        self.app, self.job = module.app, module.credit
        self.worker = Worker(name, folder, concurrency)

    def send(self) -> None:
        self.job.delay(account_id=7, points=50, sent=time.time())

    def consume(self, on: bool) -> None:
        """Have the worker take messages, or stop it."""
        verb = self.app.control.add_consumer if on else self.app.control.cancel_consumer
        answers = verb(self.app.conf.task_default_queue, destination=[self.worker.node], reply=True, timeout=20)
        if not answers or "ok" not in answers[0][self.worker.node]:
            raise RuntimeError(f"the {self.name} worker did not answer: {answers}")

    def work_off(self, jobs: int) -> Sample:
        """Queue `jobs` messages while nobody takes them, then let the worker have them."""
        self.sql.rows("TRUNCATE bench.ledger")
        for _ in range(jobs):
            self.send()
        before, lsn = self._used(), self.sql.value("SELECT pg_current_wal_insert_lsn()")
        self.consume(True)
        self.await_effects(jobs)
        wal = self.sql.value("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", lsn)
        spent = [(after - was) / jobs for was, after in zip(before, self._used(), strict=True)]
        self.consume(False)
        moments = sorted(row[0] for row in self.commits())
        first, last = int(jobs * EDGE), int(jobs * (1 - EDGE)) - 1
        return Sample((last - first) / (moments[last] - moments[first]), float(wal) / jobs, *spent)

    def commits(self) -> list[tuple[float, float]]:
        """When each job was committed, by the server's clock, and when it was sent; seconds since the epoch."""
        return self.sql.rows(
            "SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8, sent FROM bench.ledger"
        )

    def await_effects(self, jobs: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while (done := self.sql.value("SELECT count(*) FROM bench.ledger")) < jobs:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: {done} of {jobs} jobs after {PATIENCE:g} s, see {self.worker.log}")
            time.sleep(0.05)

    def _used(self) -> tuple[float, float, float]:
        backends = self.sql.rows("SELECT pid FROM pg_stat_activity WHERE application_name = %s", self.name)
        worker = self.worker
        return used([worker.process.pid]), used(worker.children()), used(pid for (pid,) in backends)


@dataclass(frozen=True)
class Latency:
    """Seconds from before the job was sent until it was committed."""

    p50: float
    p99: float


def latencies(variants: list[Variant], jobs: int, interval: float) -> dict[str, Latency]:
    """Send single jobs to idle workers, the variants in turn, every `interval` seconds."""
    found: dict[str, Any] = {}
    for variant in variants:
        variant.sql.rows("TRUNCATE bench.ledger")
        variant.consume(True)
    sent: list[tuple[float, str]] = []
    for number in range(jobs * len(variants)):
        variant = variants[number % len(variants)]
        moment = time.time()
        sent.append((moment, variant.name))
        variant.job.delay(account_id=number, points=50, sent=moment)
        time.sleep(max(0.0, moment + interval - time.time()))
    variants[0].await_effects(len(sent))
    whose = dict(sent)
    times: dict[str, list[float]] = {variant.name: [] for variant in variants}
    for committed, moment in variants[0].commits():
        times[whose[moment]].append(committed - moment)
    for variant in variants:
        variant.consume(False)
        found[variant.name] = Latency(quantile(times[variant.name], 0.5), quantile(times[variant.name], 0.99))
    return found
