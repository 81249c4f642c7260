"""A batch of rows on real brokers: what was confirmed, what was refused, and what nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Queue

from harness.core.message import Message
from harness.relay import Sent
from harness.store.inbox import InboxRow
from harness.worker.publisher import Publisher
from tests.services import RabbitMQ

QUEUE = "jobs"


def row(number: int, queue: str = QUEUE, **headers: Any) -> InboxRow:
    job_id = f"job-{number}"
    message = Message(b"[]", "application/json", "utf-8", {"task": "t", "id": job_id} | headers, {}, queue)
    now = datetime.now(UTC)
    known: dict[str, Any] = dict.fromkeys(InboxRow.__dataclass_fields__)
    known |= {"id": number, "service": "s", "consumer": "s/t", "task": "t", "job_id": job_id, "message": message}
    known |= {"attempts": 0, "deliveries": 0, "dispatches": 1, "generation": 0, "failures": [], "priority": 0}
    return InboxRow(**known | {"created_at": now, "available_at": now})


def publisher_of(url: str) -> Publisher:
    app = Celery("publisher", broker=url, set_as_current=False)
    return Publisher(app)


@pytest.fixture
def publisher(broker_url: str) -> Iterator[Publisher]:
    made = publisher_of(broker_url)
    yield made
    made.close()


@pytest.fixture
def queue(broker_url: str) -> Iterator[Any]:
    with Connection(broker_url) as connection:
        made = Queue(QUEUE, routing_key=QUEUE, durable=True)(connection.default_channel)
        made.declare()
        yield made


def ids(queue: Any) -> list[str]:
    found = []
    while (message := queue.get(no_ack=True)) is not None:
        found.append(message.headers["id"])
    return found


def test_a_batch_in_its_order(publisher: Publisher, queue: Any) -> None:
    rows = [row(number) for number in range(300)]
    for _ in range(2):
        sent = publisher(rows)
        assert sent == Sent(confirmed=set(range(300)))
        assert ids(queue) == [one.job_id for one in rows]


def test_what_has_no_form_is_refused_and_the_others_go(publisher: Publisher, queue: Any, broker_url: str) -> None:
    rows = [row(0), row(1, bad=object()), row(2), row(3, bad={"deep": object()}), row(4)]
    sent = publisher(rows)
    assert sent.error is None
    assert sent.confirmed == {0, 2, 4}
    assert {number: "has no form" in str(error) for number, error in sent.refused.items()} == {1: True, 3: True}
    assert ids(queue) == ["job-0", "job-2", "job-4"]


def test_a_broker_that_is_away(publisher: Publisher) -> None:
    nowhere = publisher_of("amqp://guest:guest@127.0.0.1:1//")
    sent = nowhere([row(1), row(2)])
    assert sent.error is not None
    assert (sent.confirmed, sent.refused) == (set(), {})


def test_a_queue_that_does_not_exist_and_one_that_is_full(rabbitmq_url: str) -> None:
    publisher = publisher_of(rabbitmq_url)
    with Connection(rabbitmq_url) as connection:
        full = {"x-max-length": 2, "x-overflow": "reject-publish"}
        for name, arguments in ((QUEUE, {}), ("full", full)):
            Queue(name, routing_key=name, queue_arguments=arguments)(connection.default_channel).declare()
        rows = [row(number, ("missing", "full", QUEUE)[number % 3]) for number in range(12)]
        sent = publisher(rows)
        assert sent.error is None
        assert sent.confirmed == {1, 4, 2, 5, 8, 11}
        assert {number for number, error in sent.refused.items() if "no queue 'missing'" in str(error)} == {0, 3, 6, 9}
        assert all("Start a worker with -Q missing, or correct" in str(sent.refused[n]) for n in (0, 3, 6, 9))
        assert {number for number, error in sent.refused.items() if "refuses more" in str(error)} == {7, 10}
        assert publisher(rows[2::3]).confirmed == {2, 5, 8, 11}, "the connection goes on"
    publisher.close()


def test_a_connection_that_breaks_in_a_batch(own_rabbitmq: RabbitMQ) -> None:
    """What was confirmed before is known, of the rest nobody knows; the next batch opens a new connection."""
    publisher = publisher_of(own_rabbitmq.url)
    with Connection(own_rabbitmq.url) as connection:
        Queue(QUEUE, routing_key=QUEUE)(connection.default_channel).declare()
    assert publisher([row(0)]).confirmed == {0}
    own_rabbitmq.restart()
    sent = publisher([row(number) for number in range(1, 50)])
    assert sent.error is not None
    assert sent.refused == {}
    assert publisher([row(50)]).confirmed == {50}
    publisher.close()
