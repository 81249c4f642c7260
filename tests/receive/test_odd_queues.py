"""Queues of RabbitMQ that are not classic: quorum queues are sources as any other, streams are refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection, Queue

from harness.core.errors import UsageError
from tests.receive.running import Receiver, message
from tests.worker.running import State, until
from tests.worker.wires import Wires


@pytest.fixture
def receiving(rabbitmq_url: str, database: str, tmp_path: Path) -> Iterator[Callable[..., Receiver]]:
    """Starts a receiver of some sources."""
    started: list[Receiver] = []

    def start(*sources: str) -> Receiver:
        receiver = Receiver(rabbitmq_url, database, tmp_path / f"{len(started)}.log", *sources)
        receiver.environment["TEST_ODD_QUEUES"] = "1"
        started.append(receiver)
        receiver.launch()
        return receiver

    yield start
    for receiver in started:
        receiver.kill()


def make(url: str, name: str, kind: str) -> None:
    with Connection(url) as connection:
        Queue(name, channel=connection.channel(), durable=True, queue_arguments={"x-queue-type": kind}).queue_declare()


def send(url: str, queue: str, names: list[str], pause: float = 0.0) -> None:
    with Connection(url) as connection, connection.Producer() as producer:
        for name in names:
            time.sleep(pause)
            raw = message(name)
            producer.publish(raw.body, routing_key=queue, content_type=raw.content_type, message_id=name)


def test_a_quorum_queue(receiving: Callable[..., Receiver], rabbitmq_url: str, database: str, tmp_path: Path) -> None:
    """Each message is taken in once, also where its receiver is killed with messages in its hand."""
    state = State(database)
    make(rabbitmq_url, "quorum", "quorum")
    names = [f"q{number:03}" for number in range(200)]
    send(rabbitmq_url, "quorum", names)
    first = receiving("quorum")
    until(lambda: first.says("received job_id=q") > 20, 60)
    first.kill()
    second = receiving("quorum")
    until(lambda: len(_ids(state)) >= len(names), 60)
    assert _ids(state) == names
    wires = Wires(rabbitmq_url, "quorum")
    wires.empty(60)
    wires.close()
    assert "ERROR" not in second.text()
    state.close()


@pytest.mark.parametrize("source", ["stream", "given_stream"])
def test_a_stream_is_refused(receiving: Callable[..., Receiver], rabbitmq_url: str, database: str, source: str) -> None:
    """Nothing of it is stored or acknowledged, and the other sources go on."""
    state = State(database)
    make(rabbitmq_url, source, "stream")
    receiver = receiving(source, "orders")
    until(lambda: receiver.says("receive: ready"), 60)
    # One after the other: each comes while the broker is asked about the one before it.
    send(rabbitmq_url, source, [f"s{number}" for number in range(100)], pause=0.001)
    said = f"source {source} gets nothing from queue {source}: a RabbitMQ stream keeps what was read"
    until(lambda: receiver.says(said), 60)
    assert receiver.says("Name another queue") == 1
    send(rabbitmq_url, "orders", ["o1"])
    until(lambda: _ids(state) == ["o1"], 60)
    assert receiver.alive
    assert "Traceback" not in receiver.text()
    state.close()


def test_who_only_claims_to_be_a_stream(receiving: Callable[..., Receiver], rabbitmq_url: str, database: str) -> None:
    state, wires = State(database), Wires(rabbitmq_url, "orders")
    receiver = receiving("orders")
    until(lambda: receiver.says("receive: ready"), 60)
    names = [f"o{number:02}" for number in range(50)]
    for name in names:
        raw = message(name)
        raw.headers["x-stream-offset"] = 7
        wires.send(raw)
    until(lambda: _ids(state) == names, 60)
    wires.empty()
    wires.close()
    state.close()


def test_a_stream_is_refused_where_it_is_declared() -> None:
    from celery import Celery

    from harness import Harness

    app = Celery("streams", broker="memory://", set_as_current=False)
    here = Harness(app, service="s", database_url="postgresql://")

    @here.job(name="taken", shared=False)
    def taken(item: str) -> None: ...

    stream: dict[str, Any] = {"x-queue-type": "stream"}
    with pytest.raises(UsageError, match="a RabbitMQ stream keeps what was read"):
        here.source("one", job=taken, queue="one", queue_arguments=stream)
    with pytest.raises(UsageError, match="Bind a quorum or classic queue"):
        here.source("two", job=taken, queue=Queue("two", queue_arguments=stream))
    here.close()


def _ids(state: State) -> list[str]:
    return [row.job_id for row in state.sql("SELECT job_id FROM core.inbox ORDER BY job_id")]
