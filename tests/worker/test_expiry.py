"""A job that expires while no worker is there: a letter says so, the broker does not drop it."""

import time
from collections.abc import Callable
from uuid import uuid4

from celery import Celery
from sqlalchemy.orm import Session

from harness import Harness
from tests.worker.running import State, Worker, client, until


def test_a_job_that_expires_in_the_queue(
    start_worker: Callable[..., Worker], broker_url: str, database: str, state: State
) -> None:
    app = client(broker_url)
    harness = Harness(app, service="tests", database_url=database)

    @harness.job(name="credit", shared=False)
    def credit(session: Session) -> None: ...

    late, in_time = uuid4().hex, uuid4().hex
    credit.apply_async(task_id=late, expires=0.5)
    credit.apply_async(task_id=in_time, expires=600)
    app.close()
    time.sleep(1.5)
    start_worker()
    letter = until(lambda: state.letter(late), 30, "a letter")
    assert (letter.reason, state.effects(late)) == ("expired", 0)
    until(lambda: state.settled(in_time), 30, "the other one runs")
    assert state.effects(in_time) == 1


def test_the_message_of_a_plain_task_keeps_its_time_to_live(rabbitmq_url: str) -> None:
    app = Celery("plain", broker=rabbitmq_url, set_as_current=False)

    @app.task(name="plain", shared=False)
    def plain() -> None: ...

    plain.apply_async(expires=30)
    with app.connection_for_read() as connection:
        message = until(lambda: connection.default_channel.basic_get("celery"), 10, "the message")
    assert int(message.properties["expiration"]) > 20_000
    app.close()
