"""One run: producers, three workers, two relays, processes that are killed; then each run of each job is checked."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.order import load
from tests.services import Servers
from tests.worker.running import ForkedWorker, State, Worker

TABLES = """
CREATE TABLE order_runs (id bigserial PRIMARY KEY, key text NOT NULL, number int NOT NULL, seen int NOT NULL,
    began timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE order_effects (id bigserial PRIMARY KEY, key text NOT NULL, number int NOT NULL,
    ended timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON order_effects (key, number)
"""
#: A run that began before each job before it was committed. It has looked by itself, in a snapshot of its own.
VIOLATIONS = """
SELECT key, number, seen, began,
    (SELECT max(ended) FROM order_effects e WHERE e.key = r.key AND e.number = r.number - 1) AS ended
FROM order_runs r WHERE seen < number ORDER BY id
"""
DOUBLED = "SELECT key, number, count(*) FROM order_effects GROUP BY 1, 2 HAVING count(*) > 1"


@dataclass
class Verdict:
    """What the checker has found."""

    jobs: int
    keys: int
    violations: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    runs: int = 0
    seconds: float = 0.0
    chaos: Counter[str] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        return not (self.violations or self.lost or self.doubled)

    @property
    def line(self) -> str:
        found = f"violations={len(self.violations)} lost={len(self.lost)} doubled={len(self.doubled)}"
        return f"order: jobs={self.jobs} keys={self.keys} {found}"


def check(state: State, jobs: int, keys: int) -> Verdict:
    """Hold what the runs have seen, and what is committed, against what was enqueued."""
    verdict = Verdict(jobs, keys, runs=state.sql("SELECT count(*) FROM order_runs")[0][0])
    for key, number, seen, began, ended in state.sql(VIOLATIONS):
        verdict.violations.append(f"{key} {number}: began {began}, saw {seen}; the one before it ended {ended}")
    verdict.doubled = [f"{key} {number}: {count} effects" for key, number, count in state.sql(DOUBLED)]
    there = {(row.key, row.number) for row in state.sql("SELECT DISTINCT key, number FROM order_effects")}
    each = jobs // keys
    for key in (f"key-{number:03}" for number in range(keys)):
        verdict.lost += [f"{key} {number}" for number in range(each) if (key, number) not in there]
    return verdict


class Place:
    """Three workers, two of them with a relay, on one database and broker."""

    def __init__(self, database: str, broker: str, folder: Path, fault: str = "", concurrency: int = 2) -> None:
        self.state = State(database)
        self.state.sql(TABLES)
        self.workers = [
            ForkedWorker(
                broker,
                database,
                folder / f"worker{number}.log",
                concurrency=concurrency,
                options=["-I", "tests.order.jobs"],
                environment={"ORDER_FAULT": fault},
                harness_relay="worker" if number < 2 else "off",
                harness_max_deliveries=60,
                # On a loaded machine a backlog must not be sent twice; what a killed relay has leased waits so long.
                harness_lease=20.0,
            )
            for number in range(3)
        ]

    def start(self) -> None:
        for worker in self.workers:
            worker.launch()
        for worker in self.workers:
            deadline = time.monotonic() + 240
            while not worker.has_logged(" ready."):
                assert worker.alive, worker.text()[-3000:]
                assert time.monotonic() < deadline, worker.text()[-3000:]
                time.sleep(0.1)

    def harm(self, dice: random.Random) -> str:
        """Kill something: a child of a pool, a relay, or a whole worker, which starts again."""
        worker = dice.choice(self.workers)
        what = dice.choices(("child", "relay", "worker"), (6, 3, 1))[0]
        if what == "worker":
            worker.kill()
        else:
            with contextlib.suppress(psutil.Error, OSError):
                relay = _relays(worker)
                pool = [child for child in worker.children() if child not in relay]
                if some := relay if what == "relay" else pool:
                    os.kill(dice.choice(sorted(some)), signal.SIGKILL)
        for one in self.workers:
            if not one.alive:
                with contextlib.suppress(AssertionError):
                    one.kill()
                one.launch()
        return what

    def close(self) -> None:
        for worker in self.workers:
            if worker.process is not None:
                worker.kill()
        self.state.close()


def _relays(worker: Worker) -> list[int]:
    """The worker's relay, which starts before the pool; a pool's child that took its place is as good a victim."""
    if worker.environment["TEST_SETTINGS"].find('"harness_relay": "off"') >= 0 or worker.process is None:
        return []
    children = psutil.Process(worker.process.pid).children()
    return [min(children, key=lambda child: child.create_time()).pid] if children else []


def order(
    servers: Servers,
    kind: str,
    folder: Path,
    *,
    jobs: int = 20_000,
    keys: int = 200,
    fails: float = 0.05,
    seed: int = 1,
    pause: tuple[float, float] = (0.5, 3.0),
    longest: float = 1200.0,
    fault: str = "",
    told: Callable[[int, int], None] = lambda sent, done: None,
) -> Verdict:
    """Run it; from the main thread. Ends when each job is done, or nothing was done for a minute and a half."""
    database = servers.databases().make()
    broker = servers.redis_url() if kind == "redis" else servers.rabbitmq_url()
    place = Place(database, broker, folder, fault)
    producer = load.Producer(database)
    dice, chaos = random.Random(seed), Counter[str]()
    sent = [0]
    try:
        place.start()
        began = progress = time.monotonic()
        most = -1

        def enqueued(count: int) -> None:
            sent[0] += count

        threads = load.start(producer, keys, jobs // keys, fails, seed, enqueued)
        next_harm = began + dice.uniform(*pause)
        while time.monotonic() - began < longest:
            done = place.state.sql("SELECT count(*) FROM order_effects")[0][0]
            told(sent[0], done)
            if done > most:
                most, progress = done, time.monotonic()
            idle = not any(thread.is_alive() for thread in threads)
            if (idle and not place.state.sql("SELECT 1 FROM core.inbox LIMIT 1")) or time.monotonic() - progress > 90:
                break
            if time.monotonic() > next_harm and done < jobs * 0.95:
                chaos[place.harm(dice)] += 1
                next_harm = time.monotonic() + dice.uniform(*pause)
            time.sleep(0.2)
        for thread in threads:
            thread.join()
        verdict = check(place.state, jobs, keys)
        verdict.seconds, verdict.chaos = time.monotonic() - began, chaos
        return verdict
    finally:
        place.close()
        producer.close()
        if kind == "rabbitmq":
            servers.close_rabbitmq_url(broker)
        servers.databases().drop(database)
