"""RabbitMQ closes the channel of a job that takes longer than its consumer time-out."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.services import Servers
from tests.worker.queues import messages
from tests.worker.running import ForkedWorker, State, client, until


@pytest.mark.rabbitmq
def test_a_job_that_takes_longer_than_the_consumer_timeout(
    servers: Servers, database: str, state: State, tmp_path: Path
) -> None:
    # Looked at every second instead of every minute.
    server = servers.own_rabbitmq("{consumer_timeout, 2000}, {channel_tick_interval, 1000}")
    worker = ForkedWorker(server.url, database, tmp_path / "worker.log", broker_connection_max_retries=None).start()
    sender = client(server.url)
    long, after = uuid4().hex, uuid4().hex
    try:
        sender.send_task("credit", kwargs={"pause": 7.0}, task_id=long)
        until(lambda: worker.has_logged("delivery acknowledgement on channel"), 30, "the channel is closed")
        sender.send_task("credit", task_id=after)
        for job_id in (long, after):
            until(lambda job_id=job_id: state.settled(job_id), 60, "it ends")
            assert (state.fence(job_id), state.effects(job_id)) == ("done", 1)
        until(lambda: messages(server.url) == 0, 20, "the queue is drained")
        assert worker.alive
        assert worker.text().count(" ready.") == 1
        assert worker.text().count(f" completed job_id={long}") == 1
        assert state.letters() == []
    finally:
        worker.stop()
        sender.close()
        servers.discard(server)
