"""The queue that a message came from is what its job is sent to again, however the message got there."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from celery import Celery
from kombu import Exchange

from tests.worker.running import State, Worker, until

#: As `task_queues`: by name, how each is bound.
QUEUES = {
    "jobs": {"exchange": "jobs", "routing_key": "jobs"},
    "plainly": {"exchange": "orders", "exchange_type": "direct", "routing_key": "new"},
    "as well": {"exchange": "orders", "exchange_type": "direct", "routing_key": "new"},
    "by pattern": {"exchange": "events", "exchange_type": "topic", "routing_key": "order.*"},
    "all": {"exchange": "events", "exchange_type": "topic", "routing_key": "#"},
    "told": {"exchange": "news", "exchange_type": "fanout"},
}
TYPES = {"orders": "direct", "events": "topic", "news": "fanout"}


@pytest.mark.parametrize(
    ("read", "exchange", "key"),
    [
        ("plainly", "orders", "new"),
        ("as well", "orders", "new"),
        ("by pattern", "events", "order.paid"),
        ("all", "events", "order.paid"),
        ("told", "news", "told"),
    ],
)
def test_a_job_goes_back_to_the_queue_that_it_came_from(
    start_worker: Callable[..., Worker], sender: Celery, state: State, read: str, exchange: str, key: str
) -> None:
    worker = start_worker(concurrency=1, task_queues=QUEUES, options=["-Q", read])
    if read == "told":
        time.sleep(3)  # on Redis it is a subscription, which begins a little later and gets nothing from before
    where = Exchange(exchange, TYPES[exchange])
    for job in ("fails_until", "permanent"):
        args = [2] if job == "fails_until" else []
        sender.send_task(job, args, task_id=job, exchange=where, routing_key=key, declare=[where])
        until(lambda job=job: state.settled(job), 30, f"{job} ends; see {worker.log}")
    assert (state.effects("fails_until"), state.fence("fails_until")) == (1, "done")
    assert state.letter("permanent").queue == read
