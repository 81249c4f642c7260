"""The broker, or the result backend, is away just when the next step is to be sent: nothing stops, nothing doubles."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import chain, chord, group

from tests.worker.canvas import Desk, new
from tests.worker.gate import Gate
from tests.worker.running import State, Worker, until


@pytest.fixture
def desk(broker_url: str, redis_url: str, state: State, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(broker_url, redis_url, state, tmp_path)
    yield made
    made.close()


@pytest.fixture
def gate(broker_url: str) -> Iterator[Gate]:
    made = Gate(broker_url)
    yield made
    made.shut()


def test_the_broker_takes_nothing(
    desk: Desk, gate: Gate, start_worker: Callable[..., Worker], redis_url: str, broker_url: str
) -> None:
    """Held and tried again; longer than `outage_hold`: the message goes back, and its duplicate sends the step."""
    gate.open()
    worker = start_worker(
        result_backend=redis_url,
        broker_read_url=broker_url,
        broker_write_url=gate.url,
        broker_connection_timeout=1,
        harness_outage_hold=4.0,
        harness_relay="off",  # it would publish through the gate, too
        worker_send_task_events=False,  # the parent needs its own connection to nothing but the queue
        options=["--without-heartbeat"],
        environment={"CANVAS": "1"},
    )
    gate.shut()
    s = desk.s
    lead, gid = new(), new()
    line = chain(s("step", task_id=lead), s("plain_step"), s("step")).apply_async()
    until(lambda: worker.has_logged(f"what comes after job {lead} can't be sent now"), 60, "it is held")
    gate.open()
    assert line.get(timeout=60) == 3
    gate.shut()

    failing = s("credit", points="many", task_id=new())
    failing.set(link_error=[s("errback")])
    failing.apply_async()
    parts = chord(group([s("step", 1), s("step", 2)], task_id=gid), s("total")).apply_async()
    until(lambda: worker.text().count("duplicate job_id=") >= 2, 90, "both went back to the broker")
    gate.open()
    assert parts.get(timeout=90) == 5
    until(lambda: desk.runs("errback"), 60, "the errback")
    assert [run["got"] for run in desk.runs("errback")] == [failing.id]
    assert len(desk.runs("total")) == 1
    assert len(desk.runs("step")) == 4
    assert len(desk.runs("plain_step")) == 1
