"""Many rows in one round trip, on a real server of the Redis protocol: cut in the middle, refused, out of memory."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis.exceptions
from celery import Celery
from kombu import Connection, Queue
from redis import Redis

from harness.store.inbox import InboxRow
from harness.worker import pipelined
from harness.worker import publisher as publisher_module
from harness.worker.one_by_one import OneByOne
from harness.worker.pipelined import Pipelined
from harness.worker.publisher import Publisher
from tests.order.conftest import lane
from tests.order.lane import Lane
from tests.services import Valkey
from tests.worker.proxy import Proxy
from tests.worker.running import until
from tests.worker.test_publisher import QUEUE, ids, row

LPUSH = b"LPUSH"
LEASED = "SELECT count(*) FROM core.inbox WHERE leased_until > now() AND relay_error IS NULL"
__all__ = ["lane"]


class HalfWay(Proxy):
    """Lets `left` more messages pass and half of the next one, then cuts; `deaf`: just these, cut before the answer."""

    left: int | None = None
    deaf = False

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        held = b""
        while data := client.recv(1 << 20):
            if self.left is None or LPUSH not in data:
                server.sendall(data)
                continue
            if self.deaf:
                held += data
                if held.count(LPUSH) == self.left and held.endswith(b"\r\n"):
                    client.shutdown(socket.SHUT_RDWR)
                    server.sendall(held)
                    return
                continue
            parts = data.split(LPUSH)
            if len(parts) - 1 > self.left:
                begun = LPUSH.join(parts[: self.left + 1]) + LPUSH + parts[self.left + 1][:20]
                server.sendall(begun)
                return
            self.left -= len(parts) - 1
            server.sendall(data)


@pytest.fixture
def publish() -> Iterator[Callable[..., Publisher]]:
    made = []

    def make(url: str, **options: Any) -> Publisher:
        app = Celery("pipelined", broker=url, set_as_current=False)
        app.conf.broker_transport_options = options
        made.append(Publisher(app))
        return made[-1]

    yield make
    for publisher in made:
        publisher.close()


@pytest.fixture
def half_way(redis_url: str) -> Iterator[HalfWay]:
    proxy = HalfWay(redis_url)
    yield proxy
    proxy.cut_all()
    proxy.close()


def waiting(url: str, **options: Any) -> list[str]:
    """The ids in the queue as a worker takes them, the urgent ones first; it is empty then."""
    with Connection(url, transport_options=options) as connection:
        return ids(Queue(QUEUE, routing_key=QUEUE)(connection.default_channel))


def length(url: str, queue: str = QUEUE) -> int:
    with Redis.from_url(url) as client:
        return int(client.llen(queue))


def of_inbox(url: str) -> list[str]:
    """The jobs in the queue of the lane, whose messages have no id of their own."""
    found = []
    with Connection(url) as connection:
        queue = Queue("q", routing_key="q")(connection.default_channel)
        while (message := queue.get(no_ack=True)) is not None:
            found.append(message.headers["harness_job_id"])
    return found


def prioritised(number: int, priority: int) -> InboxRow:
    one = row(number)
    return replace(one, message=replace(one.message, properties={"priority": priority}))


def names(*numbers: int) -> list[str]:
    return [f"job-{number}" for number in numbers]


@pytest.mark.parametrize("limit", [("MOST", 20), ("MOST_BYTES", 20 * len(row(0).message.body))], ids=lambda one: one[0])
@pytest.mark.parametrize("passes", [0, 7, 25, 49])
def test_cut_in_the_middle_of_a_batch(
    publish: Callable[..., Publisher],
    half_way: HalfWay,
    redis_url: str,
    passes: int,
    limit: tuple[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever counts as confirmed is there; of the others nobody knows, and sent again they are there in order."""
    monkeypatch.setattr(pipelined, *limit)
    publisher = publish(half_way.url)
    assert publisher([row(1000)]).confirmed == {1000}
    half_way.left = passes
    sent = publisher(rows := [row(number) for number in range(50)])
    assert isinstance(sent.error, redis.exceptions.ConnectionError), "the word of the connection itself"
    assert sent.refused == {}
    assert sent.confirmed == set(range(passes // 20 * 20)), "a round trip that was answered, and nothing else"
    until(lambda: length(redis_url) == 1 + passes, 60, "what has passed is there")
    assert waiting(redis_url) == names(1000, *range(passes))
    half_way.left = None
    again = [one for one in rows if one.id not in sent.confirmed]
    assert publisher(again).confirmed == {one.id for one in again}
    assert waiting(redis_url) == [one.job_id for one in again]


def test_taken_but_never_answered(publish: Callable[..., Publisher], half_way: HalfWay, redis_url: str) -> None:
    publisher = publish(half_way.url)
    assert publisher([row(1000)]).confirmed == {1000}
    half_way.left, half_way.deaf = 50, True
    sent = publisher([row(number) for number in range(50)])
    assert (sent.confirmed, sent.refused) == (set(), {})
    assert sent.error is not None
    until(lambda: length(redis_url) == 51, 60, "the server has all of them")
    half_way.left, half_way.deaf = None, False
    assert publisher([row(0)]).confirmed == {0}, "a connection of its own for what is sent next"
    assert waiting(redis_url) == names(1000, *range(50), 0)


def test_a_relay_loses_none_when_it_is_cut(
    publish: Callable[..., Publisher], half_way: HalfWay, redis_url: str, lane: Lane
) -> None:
    """Through the inbox: what nobody knows of is released and sent again, at once and in its order."""
    jobs = [f"job {number:02}" for number in range(30)]
    lane.put(*jobs, key=None)
    relay = lane.make_relay()
    relay.publish = publish(half_way.url)
    half_way.left = 12
    with pytest.raises(redis.exceptions.ConnectionError):
        relay.step()
    assert lane.one("SELECT count(*) FROM core.inbox WHERE leased_until IS NULL AND dispatches = 0") == 30
    until(lambda: length(redis_url, "q") == 12, 60, "what has passed is there")
    half_way.left = None
    assert relay.step() == 30
    assert of_inbox(redis_url) == jobs[:12] + jobs
    assert lane.one("SELECT count(*) FROM core.inbox WHERE leased_until > now() AND dispatches = 1") == 30


def test_a_queue_that_the_server_refuses_keeps_nobody_else(
    publish: Callable[..., Publisher], redis_url: str, lane: Lane
) -> None:
    """Its name is that of something else. The others go, once; it waits, and says what the server says."""
    lane.put("one", "two", key=None)
    lane.put("bad", key=None)
    lane.put("three", "four", key=None)
    lane.all("UPDATE core.inbox SET queue = 'no list' WHERE job_id = 'bad'")
    with Redis.from_url(redis_url) as client:
        client.set("no list", "something else")
    relay = lane.make_relay()
    relay.publish = publish(redis_url)
    for _ in range(4):
        with contextlib.suppress(redis.exceptions.ResponseError):
            relay.step()
    assert Counter(of_inbox(redis_url)) == {"one": 1, "two": 1, "three": 1, "four": 1}
    said = lane.error("bad") or ""
    assert "WRONGTYPE" in said
    assert "LPUSH" not in said, "the message would be quoted"
    assert lane.one("SELECT count(*) FROM core.inbox WHERE relay_error IS NULL AND leased_until > now()") == 4


def test_a_server_without_memory(publish: Callable[..., Publisher], own_redis: Valkey) -> None:
    publisher, rows = publish(own_redis.url), [row(number) for number in range(5)]
    with own_redis.client() as client:
        client.config_set("maxmemory", 1)
        sent = publisher(rows)
        assert (sent.confirmed, sent.refused) == (set(), {})
        assert "OOM" in type(sent.error).__name__ + str(sent.error) or "maxmemory" in str(sent.error)
        client.config_set("maxmemory", 0)
    assert publisher(rows).confirmed == set(range(5))
    assert waiting(own_redis.url) == names(*range(5))


def test_a_server_that_hangs(
    publish: Callable[..., Publisher], own_redis: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the commands and says nothing, as a machine does that is gone: the relay must not wait for ever."""
    monkeypatch.setattr(publisher_module, "ANSWERED_WITHIN", 1.0)
    publisher = publish(own_redis.url)
    assert publisher([row(1000)]).confirmed == {1000}
    assert own_redis.pid is not None
    os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        for _ in range(2):  # on a connection that was open, then on one that is to be opened
            sent = publisher([row(number) for number in range(50)])
            assert (sent.confirmed, sent.refused) == (set(), {})
            assert sent.error is not None
    finally:
        os.kill(own_redis.pid, signal.SIGCONT)
    assert publisher([row(50)]).confirmed == {50}
    assert set(waiting(own_redis.url)) >= {"job-1000", "job-50"}


def test_a_server_that_is_killed_under_load(publish: Callable[..., Publisher], own_redis: Valkey, lane: Lane) -> None:
    """Three times, while a relay sends 3,000 rows: each message is there in the end, whatever was in the middle."""
    jobs = [f"job {number:04}" for number in range(3000)]
    lane.put(*jobs, key=None)
    relay, stop = lane.make_relay(poll=0.05), threading.Event()
    relay.publish = publish(own_redis.url)
    runs = threading.Thread(target=relay.run, args=(stop,))
    runs.start()
    try:
        for part in (1, 2, 3):
            until(lambda: lane.one(LEASED) >= 700 * part, 60, "it is on its way")  # noqa: B023 – waited for here
            own_redis.kill()
            own_redis.start()
        until(lambda: lane.one(LEASED) == 3000, 60, "all are sent")
    finally:
        stop.set()
        runs.join()
    assert set(of_inbox(own_redis.url)) == set(jobs)


def test_priorities_and_the_prefix_of_all_keys(publish: Callable[..., Publisher], redis_url: str) -> None:
    options = {"global_keyprefix": "acme-", "queue_order_strategy": "priority"}
    publisher = publish(redis_url, **options)
    rows = [prioritised(0, 9), prioritised(1, 3), prioritised(2, 0), prioritised(3, 3)]
    assert publisher(rows).confirmed == {0, 1, 2, 3}
    with Redis.from_url(redis_url) as client:
        assert {key.partition(b"jobs")[0] for key in client.keys("*jobs*")} == {b"acme-"}
    assert waiting(redis_url, **options) == names(2, 1, 3, 0)


def test_where_a_batch_may_be_sent_twice_each_goes_alone(publish: Callable[..., Publisher], redis_url: str) -> None:
    """kombu does not batch for a client that repeats what it has sent by itself."""
    alone, together = publish(redis_url, retry_on_timeout=True), publish(redis_url)
    for publisher, kind in ((alone, OneByOne), (together, Pipelined)):
        assert publisher([row(number) for number in range(20)]).confirmed == set(range(20))
        assert type(publisher._line) is kind
        assert waiting(redis_url) == names(*range(20))
