"""A Redis-protocol server that refuses writes, or breaks the connection, between the pop of a message and its note."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kombu import Connection, Consumer, Producer, Queue
from kombu.transport.virtual import QoS
from redis import Redis
from redis.exceptions import ConnectionError as Broken
from redis.exceptions import OutOfMemoryError

from harness.dev.valkey import Valkey
from harness.worker.exact import keep_bytes
from harness.worker.popped import keep_popped
from tests.worker.running import State, Worker, client, until


@pytest.fixture
def channel(own_redis: Valkey) -> Iterator[Any]:
    with Connection(own_redis.url) as connection:
        channel = connection.channel()
        keep_bytes(channel)
        keep_popped(channel)
        yield channel


def popped(channel: Any) -> list[Any]:
    """Pop the next message as a worker does, and what was delivered of it."""
    found: list[Any] = []
    queue = Queue("jobs", channel=channel)
    consumer = Consumer(channel, [queue], on_message=found.append, accept=["json"])
    consumer.consume()
    channel.connection.client.drain_events(timeout=5)
    return found


def publish(channel: Any) -> None:
    with Connection(channel.connection.client.as_uri(include_password=True)) as other:
        other.Producer().publish({"n": 1}, routing_key="jobs", declare=[Queue("jobs")], priority=5)


def test_a_server_that_is_full_and_takes_nothing(channel: Any, own_redis: Valkey) -> None:
    publish(channel)
    own_redis.client().config_set("maxmemory", "1")
    found = popped(channel)
    assert [message.payload for message in found] == [{"n": 1}], "it is worked on"
    own_redis.client().config_set("maxmemory", "0")
    found[0].ack()
    assert not own_redis.client().exists("unacked", channel._q_for_pri("jobs", 5))


def test_a_connection_that_breaks_there_puts_it_back(channel: Any, own_redis: Valkey) -> None:
    publish(channel)
    pipe = channel.qos.pipe_or_acquire
    channel.qos.pipe_or_acquire = _raising(Broken("gone"))
    with pytest.raises(Broken):
        popped(channel)
    channel.qos.pipe_or_acquire = pipe
    assert [message.payload for message in popped(channel)] == [{"n": 1}], "it comes again"
    assert own_redis.client().hlen("unacked") == 1


def _raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_other_transports_are_left_alone() -> None:
    with Connection("memory://") as connection:
        channel = connection.channel()
        append = channel.qos.append
        keep_popped(channel)
        assert channel.qos.append == append


def test_a_worker_lives_through_it(own_redis: Valkey, database: str, state: State, tmp_path: Path) -> None:
    worker = Worker(own_redis.url, database, tmp_path / "worker.log").start()
    sender = client(own_redis.url)
    ids = [uuid4().hex for _ in range(4)]
    try:
        for job_id in ids:
            sender.send_task("credit", kwargs={"pause": 0.5}, task_id=job_id)
        with Redis.from_url(own_redis.url) as admin:
            until(lambda: state.sql("SELECT 1 FROM ledger"), 30, "the first is done")
            admin.config_set("maxmemory", "1")
            with pytest.raises(OutOfMemoryError):
                admin.set("x", "y")
            threading.Event().wait(2)
            admin.config_set("maxmemory", "0")
            admin.execute_command("REPLICAOF", "127.0.0.1", "1")
            threading.Event().wait(2)
            admin.execute_command("REPLICAOF", "NO", "ONE")
        last = uuid4().hex
        sender.send_task("credit", task_id=last)
        for job_id in (*ids, last):
            until(lambda job_id=job_id: state.settled(job_id), 60, "each job ends")
            assert state.effects(job_id) == 1
        assert worker.alive
        assert worker.text().count(" ready.") == 1
    finally:
        worker.stop()
        sender.close()


def test_what_is_popped_while_the_connection_closes_goes_back(redis_url: str) -> None:
    """The consumer has been cancelled, its BRPOP still waits at the server: what that pops has no consumer any more."""
    with Connection(redis_url) as other:
        connection = Connection(redis_url)
        channel = connection.channel()
        keep_popped(channel)
        queue = Queue("popped", routing_key="popped")
        consumer = Consumer(channel, [queue], on_message=lambda message: None)
        consumer.consume()
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.2)
        assert channel._in_poll
        consumer.cancel()
        Producer(other.default_channel).publish({"n": 1}, routing_key="popped")
        connection.release()
        left = queue(other.default_channel).get(no_ack=True)
        assert left is not None
        assert left.payload == {"n": 1}


def test_a_channel_whose_close_failed_is_closed_again(own_redis: Valkey) -> None:
    """By the transport, which closes its channels until it has none."""
    connection = Connection(own_redis.url)
    channel = connection.channel()
    keep_popped(channel)
    channel._qos = _Failing(channel)
    with pytest.raises(Broken):
        channel.close()
    transport = connection.transport
    closing = threading.Thread(target=transport.close_connection, args=(connection._connection,), daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()
    assert transport.channels == []


class _Failing(QoS):
    """Once: kombu tries again when the process ends."""

    failed = False

    def restore_unacked_once(self, stderr: Any = None) -> None:
        if not self.failed:
            self.failed = True
            raise Broken("the server is gone")
