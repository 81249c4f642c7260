"""What is measured, each by itself."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kombu import Consumer, Queue

from benchmarks.relay.stage import Stage
from benchmarks.stats import quantile
from harness.worker.publisher import Publisher
from harness.worker.relaying import relay_of


@dataclass(frozen=True)
class Times:
    """Milliseconds."""

    p50: float
    p99: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Times":
        return cls(quantile(seconds, 0.5) * 1000, quantile(seconds, 0.99) * 1000)

    def __str__(self) -> str:
        return f"{self.p50:.1f} / {self.p99:.1f}"


def rows_per_second(stage: Stage, rows: int) -> float:
    """How fast one relay sends a backlog to a queue from which nobody takes."""
    stage.fill(rows)
    relay, publisher = relay_of(stage.harness), Publisher(stage.harness.app)
    relay.publish = publisher
    relay.step()  # opens the connections
    began, sent = time.monotonic(), 0
    while found := relay.step():
        sent += found
    took = time.monotonic() - began
    publisher.close()
    return sent / took


def published(stage: Stage, batches: int, each: int, interval: float, notify: bool) -> Times:
    """From the answer to the commit until a consumer has the message: `each` jobs at once, every `interval` seconds."""
    stage.clear()
    relay = ("harness", "relay")
    environment = {"BENCH_NOTIFY": "on" if notify else "off"}
    with stage.running(*relay, ready="relay", **environment), _arrivals(stage) as arrived:
        stage.enqueue([-1])
        _await(lambda: -1 in arrived, "the first message")
        committed = _paced(stage, batches, each, interval)
        _await(lambda: len(arrived) > len(committed), "all messages")
    return Times.of([arrived[number] - moment for number, moment in committed.items()])


def capacity(stage: Stage, jobs: int) -> float:
    """Jobs per second of a backlog that a worker works off, from its first start of work to its last."""
    stage.clear()
    with stage.worker(notify=True):
        stage.enqueue([-1])
        stage.started(1)
        stage.enqueue(list(range(jobs)))
        return _rate(stage.started(jobs + 1))


@dataclass(frozen=True)
class Begun:
    """From the answer to the commit until the handler runs. `offered`, `kept`: jobs a second, sent and begun."""

    times: Times
    offered: float
    kept: float


def begun(stage: Stage, batches: int, each: int, interval: float, notify: bool) -> Begun:
    """From the answer to the commit until the handler runs: `each` jobs at once, every `interval` seconds."""
    stage.clear()
    with stage.worker(notify):
        stage.enqueue([-1])
        stage.started(1)
        committed = _paced(stage, batches, each, interval)
        started = stage.started(batches * each + 1)
    times = Times.of([max(0.0, started[number] - moment) for number, moment in committed.items()])
    took = max(committed.values()) - min(committed.values())
    return Begun(times, (len(committed) - each) / took, _rate(started))


def _rate(started: dict[int, float]) -> float:
    """Jobs per second between the first start of work and the last, the job of the warm-up left out."""
    moments = [moment for number, moment in started.items() if number >= 0]
    return (len(moments) - 1) / (max(moments) - min(moments))


def keyed(stage: Stage, jobs: int, keys: int, notify: bool) -> float:
    """Jobs per second of a backlog whose jobs run one after another within each of `keys`."""
    stage.clear()
    with stage.worker(notify):
        stage.enqueue([-1])
        stage.started(1)
        stage.enqueue(list(range(jobs)), key=lambda number: f"key-{number % keys}")
        return _rate(stage.started(jobs + 1))


@dataclass(frozen=True)
class Backlog:
    """With many rows waiting: what a relay sends per second and its most memory, in MiB; a quiet one's beside it."""

    rows: int
    per_second: float
    mebibytes: float
    idle_mebibytes: float


def backlog(stage: Stage, rows: int, seconds: float) -> Backlog:
    """Let a relay work for `seconds` on a backlog that it will not see the end of."""
    stage.clear()
    with stage.running("harness", "relay", ready="relay") as process:
        time.sleep(3)
        idle = _peak(process.pid)
    stage.fill(rows)
    with stage.running("harness", "relay", ready="relay") as process:
        time.sleep(2)
        before, moment = _leased(stage), time.monotonic()
        time.sleep(seconds)
        rate = (_leased(stage) - before) / (time.monotonic() - moment)
        return Backlog(rows, rate, _peak(process.pid), idle)


def _leased(stage: Stage) -> int:
    return int(stage.sql.value("SELECT count(*) FROM core.inbox WHERE leased_until IS NOT NULL"))


def _peak(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def _paced(stage: Stage, batches: int, each: int, interval: float) -> dict[int, float]:
    committed: dict[int, float] = {}
    for batch in range(batches):
        began = time.monotonic()
        numbers = list(range(batch * each, (batch + 1) * each))
        committed |= dict.fromkeys(numbers, stage.enqueue(numbers))
        time.sleep(max(0.0, began + interval - time.monotonic()))
    return committed


@contextmanager
def _arrivals(stage: Stage) -> Iterator[dict[int, float]]:
    """When each job's message has come to a consumer in this process, by the job's number."""
    arrived: dict[int, float] = {}
    stop = threading.Event()

    def note(body: Any, message: Any) -> None:
        arrived[body[1]["number"]] = time.time()

    def consume() -> None:
        with stage.harness.app.connection_for_read() as connection:
            queue = Queue(stage.queue, routing_key=stage.queue, durable=True)
            with Consumer(connection, [queue], callbacks=[note], accept=["json"], no_ack=True):
                while not stop.is_set():
                    try:
                        connection.drain_events(timeout=0.2)
                    except TimeoutError:
                        continue

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        yield arrived
    finally:
        stop.set()
        thread.join()


def _await(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)
