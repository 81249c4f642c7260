"""On Redis-protocol brokers a message leaves its list and is noted as unacknowledged in one step, on the server."""

import json
import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest
from kombu import Connection
from kombu.transport.redis import Channel
from kombu.utils.json import dumps

from harness.dev.valkey import Valkey
from harness.worker import hearing
from tests.worker.fetching import calls, consuming, drain, drained, looks, notes, publish, restricted
from tests.worker.proxy import Proxy
from tests.worker.running import State, Worker, client, until


def test_a_message_is_noted_by_the_fetch(own_redis: Valkey) -> None:
    publish(own_redis.url, {"n": 1})
    (sent,) = own_redis.client().lrange("jobs", 0, -1)
    with consuming(own_redis.url) as channel:
        (message,) = drain(channel)
        assert message.payload == {"n": 1}
        assert own_redis.client().hget("unacked", message.delivery_tag) == b"[" + sent + b', "", "jobs"]'
        assert own_redis.client().zscore("unacked_index", message.delivery_tag)
        assert calls(own_redis, "brpop") == 0
        assert calls(own_redis, "hset") == calls(own_redis, "zadd") == 1, "the script's"
        message.ack()
        assert not own_redis.client().exists("jobs", "unacked", "unacked_index")


def test_two_copies_have_two_notes(own_redis: Valkey) -> None:
    """Under their sender's tag, the first acknowledgement would remove the note of both."""
    publish(own_redis.url, {"n": 1})
    own_redis.client().lpush("jobs", own_redis.client().lindex("jobs", 0) or b"")
    with consuming(own_redis.url) as channel:
        first, second = drain(channel, 2)
        first.ack()
        assert len(notes(own_redis)) == 1
        second.reject(requeue=True)
        assert own_redis.client().llen("jobs") == 1


@pytest.mark.parametrize("kombus", [False, True], ids=["harness", "kombu"])
def test_an_answer_that_never_comes(own_redis: Valkey, kombus: bool) -> None:
    """Its connection breaks, its process goes on: the message is back at once, without any visibility time-out."""
    proxy = Proxy(own_redis.url)
    try:
        with consuming(proxy.url, kombus=kombus, visibility_timeout=3600) as channel:
            drained(channel, 1)
            handed = proxy.swallow("delivery_tag")
            publish(own_redis.url, {"n": 1})
            until(lambda: drained(channel, 1) or handed.is_set(), 10, "it was handed over")
            assert channel.found == []
            proxy.cut_all()
            with pytest.raises(channel.connection_errors):
                drain(channel)
            assert own_redis.client().llen("jobs") == (0 if kombus else 1), "kombu's own fetch loses it"
            assert not own_redis.client().exists("unacked", "unacked_index")
            if not kombus:
                assert [message.payload for message in drain(channel)] == [{"n": 1}]
    finally:
        proxy.close()


def test_a_server_that_is_away_is_asked_when_it_is_back(own_redis: Valkey) -> None:
    proxy = Proxy(own_redis.url)
    try:
        with consuming(proxy.url, visibility_timeout=3600) as channel:
            drained(channel, 1)
            handed = proxy.swallow("delivery_tag")
            publish(own_redis.url, {"n": 1})
            until(lambda: drained(channel, 1) or handed.is_set(), 10, "it was handed over")
            own_redis.kill()
            with pytest.raises(channel.connection_errors):
                drain(channel)
        own_redis.start()
        assert not own_redis.client().llen("jobs")
        with consuming(proxy.url, "others", visibility_timeout=3600, unacked_key="another"):
            assert not own_redis.client().llen("jobs"), "one that notes elsewhere has nothing to give back"
        with consuming(proxy.url, visibility_timeout=3600) as channel:
            assert [message.payload for message in drain(channel)] == [{"n": 1}]
    finally:
        proxy.close()


@pytest.mark.parametrize("kombus", [False, True], ids=["harness", "kombu"])
def test_a_worker_that_dies_as_it_is_handed_a_message(
    own_redis: Valkey, database: str, state: State, tmp_path: Path, kombus: bool
) -> None:
    environment = {"TEST_KOMBUS_FETCH": "1"} if kombus else {}
    proxy, job_id = Proxy(own_redis.url), uuid4().hex
    sender = client(own_redis.url)
    worker = Worker(proxy.url, database, tmp_path / "worker.log", environment=environment).start()
    second = Worker(own_redis.url, database, tmp_path / "second.log", environment=environment)
    try:
        handed = proxy.swallow(job_id)
        sender.send_task("credit", task_id=job_id)
        assert handed.wait(30)
        worker.kill()
        assert state.fence(job_id) is None
        assert own_redis.client().hlen("unacked") == (0 if kombus else 1)
        if not kombus:
            second.start()
            until(lambda: state.settled(job_id), 60, "it comes again")
            assert state.effects(job_id) == 1
    finally:
        worker.stop()
        second.stop()
        sender.close()
        proxy.close()


def test_each_queue_and_priority_wakes(own_redis: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the server tells: without, this fetch would be the last for an hour."""
    monkeypatch.setattr(hearing, "LOOK", 3600.0)
    with consuming(own_redis.url, "one", "two") as channel:
        drained(channel, 1)
        for n, (queue, priority) in enumerate((("one", 0), ("two", 9), ("two", 0), ("one", 5)), 1):
            publish(own_redis.url, {"n": n}, queue, priority=priority)
            assert drain(channel, n)[-1].payload == {"n": n}


def test_what_comes_with_the_answer_wakes(own_redis: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that arrives right behind a fetch that found nothing, before its answer is read."""
    monkeypatch.setattr(hearing, "LOOK", 3600.0)
    with consuming(own_redis.url) as channel:
        for n in range(1, 50):
            channel.connection.cycle.on_poll_start()
            publish(own_redis.url, {"n": n})
            assert drain(channel, n)[-1].payload == {"n": n}


def test_an_idle_consumer_asks_once_a_second(own_redis: Valkey) -> None:
    with consuming(own_redis.url) as channel:
        drained(channel, 1)
        begin = looks(own_redis)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            drained(channel, 1)
        assert 1 <= looks(own_redis) - begin <= 5


@pytest.mark.parametrize("refused", ["-client", "-client -brpop"])
def test_a_server_that_does_not_tell(own_redis: Valkey, refused: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is made to answer later; where it refuses that as well, it is asked once a second."""
    url = restricted(own_redis, refused)
    with consuming(url, "one", "two", visibility_timeout=3600) as channel:
        for n, queue in enumerate(("two", "one", "two"), 1):
            for _ in range(3):
                drained(channel, n)
            publish(own_redis.url, {"n": n}, queue)
            assert drain(channel, n)[-1].payload == {"n": n}
        begin = looks(own_redis)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            drained(channel, 4)
        assert 1 <= looks(own_redis) - begin <= (8 if "brpop" in refused else 60)
    assert ("can't be made to wait" in caplog.text) == ("brpop" in refused)


def test_a_client_library_that_speaks_the_older_protocol(own_redis: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """redis-py before 8: the server can't tell."""
    params = Channel._connparams
    two = {"protocol": 2}
    monkeypatch.setattr(Channel, "_connparams", lambda self, asynchronous=False: params(self, asynchronous) | two)
    with consuming(own_redis.url, visibility_timeout=3600) as channel:
        for n in range(1, 4):
            drained(channel, n)
            publish(own_redis.url, {"n": n})
            assert drain(channel, n)[-1].payload == {"n": n}
        assert calls(own_redis, "client|tracking") == 0


def test_a_server_that_refuses_scripts(own_redis: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    publish(own_redis.url, {"n": 1})
    with consuming(restricted(own_redis, "-eval -evalsha")) as channel:
        (message,) = drain(channel)
        message.ack()
        assert not own_redis.client().exists("unacked", "unacked_index")
    assert caplog.text.count("does not run the script") == 1


def test_a_server_that_forgot_the_script(own_redis: Valkey) -> None:
    with consuming(own_redis.url) as channel:
        for n in range(1, 4):
            own_redis.client().script_flush()
            publish(own_redis.url, {"n": n})
            assert drain(channel, n)[-1].payload == {"n": n}
        own_redis.restart()
        publish(own_redis.url, {"n": 4})
        with pytest.raises(channel.connection_errors):
            drain(channel, 4)
        assert drain(channel, 4)[-1].payload == {"n": 4}
        assert calls(own_redis, "eval") == 1


def test_a_memory_that_is_full(own_redis: Valkey) -> None:
    """Nothing needs more of it: the message is noted, and acknowledged."""
    with consuming(own_redis.url) as channel:
        publish(own_redis.url, {"n": 1})
        own_redis.client().config_set("maxmemory", "1")
        (message,) = drain(channel)
        assert len(notes(own_redis)) == 1
        message.ack()
        assert not own_redis.client().exists("unacked", "unacked_index")
        own_redis.client().config_set("maxmemory", "0")


def test_a_note_that_can_not_be_written(own_redis: Valkey) -> None:
    publish(own_redis.url, {"n": 1})
    for key in ("unacked", "unacked_index"):
        own_redis.client().set(key, "no hash, no sorted set")
        with consuming(own_redis.url) as channel, pytest.raises(channel.ResponseError, match="WRONGTYPE"):
            drain(channel)
        assert own_redis.client().llen("jobs") == 1
        own_redis.client().delete(key)
        assert not own_redis.client().exists("unacked")


#: kombu's reader raises what the type does, here no ValueError.
NO_DECIMAL = {
    "body": "",
    "headers": {"x": {"__type__": "decimal", "__value__": "abc"}},
    "properties": {"delivery_tag": "t", "delivery_info": {"exchange": "", "routing_key": "jobs"}},
}
GARBAGE = {
    "empty": b"",
    "no UTF-8": b"\xff\xfe",
    "no JSON": b"{ no",
    "another encoding": json.dumps({"n": 1}).encode("utf-16"),
    "no envelope": b'{"n": 1}',
    "an envelope by its looks": b'{"delivery_tag": 0x1F}',
    "… that is no UTF-8": b'{"delivery_tag": "\xff"}',
    "… that is nested too deep": b'{"delivery_tag": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "… with a value that is none of its type": json.dumps(NO_DECIMAL).encode(),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_message(own_redis: Valkey, garbage: bytes) -> None:
    """It is noted as well, in a form that any worker can give back."""
    own_redis.client().lpush("jobs", garbage)
    with consuming(own_redis.url) as channel:
        (message,) = drain(channel)
        assert message.raw_body == garbage
        assert len(notes(own_redis)) == 1
        message.reject(requeue=True)
        assert own_redis.client().llen("jobs") == 1
        assert drain(channel, 2)[1].raw_body == garbage
        channel.found[1].ack()
        assert not own_redis.client().exists("jobs", "unacked", "unacked_index")


@pytest.mark.parametrize("garbage", [one for name, one in GARBAGE.items() if "…" in name or "looks" in name])
def test_a_worker_dies_before_it_has_seen_that_it_is_none(own_redis: Valkey, garbage: bytes) -> None:
    """The server takes it for one. kombu, giving it back, would end its worker over the note."""
    own_redis.client().lpush("jobs", garbage)
    own_redis.client().hset("unacked", "left", b"[" + garbage + b', "", "jobs"]')
    own_redis.client().zadd("unacked_index", {"left": 1.0})
    with consuming(own_redis.url) as channel:
        assert [message.raw_body for message in drain(channel, 2)] == [garbage] * 2


def test_it_is_given_back_whatever_its_headers_are(own_redis: Valkey) -> None:
    """kombu drops a message into whose headers it can't write."""
    publish(own_redis.url, {"n": 1})
    envelope = json.loads(own_redis.client().rpop("jobs") or b"")
    own_redis.client().lpush("jobs", json.dumps(envelope | {"headers": None}))
    with consuming(own_redis.url) as channel:
        drain(channel)[0].reject(requeue=True)
        assert drain(channel, 2)[1].body == channel.found[0].body


def test_a_note_that_leads_nowhere_stays(own_redis: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    """kombu drops the message where no queue is bound to its exchange any more."""
    publish(own_redis.url, {"n": 1})
    envelope = json.loads(own_redis.client().rpop("jobs") or b"")
    left = {"a": dumps([envelope, "gone", "jobs"]), "b": "nonsense", "c": dumps([envelope, "", "jobs"])}
    for tag, note in left.items():
        own_redis.client().hset("unacked", tag, note)
        own_redis.client().zadd("unacked_index", {tag: 1.0})
    with consuming(own_redis.url) as channel:
        assert [message.payload for message in drain(channel)] == [{"n": 1}], "the others are given back"
        assert {b"a", b"b"} < {*own_redis.client().hkeys("unacked")}
    assert "gone" in caplog.text
    assert "b" in caplog.text


def test_what_nobody_acknowledges_is_not_noted(own_redis: Valkey) -> None:
    publish(own_redis.url, {"n": 1})
    with consuming(own_redis.url, no_ack=True) as channel:
        drain(channel)
        assert not own_redis.client().exists("unacked", "unacked_index")


def test_what_comes_for_a_consumer_that_has_left_goes_back(own_redis: Valkey) -> None:
    with consuming(own_redis.url) as channel:
        drained(channel, 1)
        publish(own_redis.url, {"n": 1})
        channel.connection.cycle.on_poll_start()
        assert not channel._in_poll or own_redis.client().hlen("unacked") == 1
        channel.consumer.cancel()
    assert own_redis.client().llen("jobs") == 1
    assert not own_redis.client().exists("unacked", "unacked_index")


def test_a_prefix_of_all_keys(own_redis: Valkey) -> None:
    prefix = {"global_keyprefix": "shop:"}
    publish(own_redis.url, {"n": 1}, transport=prefix)
    own_redis.client().lpush("shop:jobs", b"garbage")
    with consuming(own_redis.url, **prefix) as channel:
        first, second = drain(channel, 2)
        assert (first.payload, second.body) == ({"n": 1}, b"garbage")
        assert own_redis.client().hlen("shop:unacked") == 2
        first.ack()
        second.reject(requeue=True)
        assert own_redis.client().llen("shop:jobs") == 1
        assert not own_redis.client().exists("shop:unacked")


def test_a_busy_queue_does_not_block_another(own_redis: Valkey) -> None:
    for n in range(3):
        publish(own_redis.url, {"n": n}, "busy")
    publish(own_redis.url, {"n": 9}, "other")
    with consuming(own_redis.url, "busy", "other") as channel:
        assert [message.payload["n"] for message in drain(channel, 4)] == [0, 9, 1, 2]


def test_no_acknowledgements_wanted(own_redis: Valkey) -> None:
    """With ack_emulation off nothing is noted: kombu's own fetch."""
    publish(own_redis.url, {"n": 1})
    with consuming(own_redis.url, ack_emulation=False) as channel:
        drain(channel)
        assert calls(own_redis, "brpop") == 1
        assert not own_redis.client().exists("unacked")


def test_consumers_side_by_side_take_each_message_once(own_redis: Valkey) -> None:
    taken: list[int] = []

    def take() -> None:
        with consuming(own_redis.url) as channel:
            while len(taken) < 300:
                drained(channel, 1)
                for message in channel.found:
                    taken.append(message.payload["n"])
                    message.ack()
                channel.found.clear()

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    with Connection(own_redis.url) as connection:
        producer = connection.Producer()
        for n in range(300):
            producer.publish({"n": n}, routing_key="jobs", priority=n % 10)
    for thread in threads:
        thread.join(60)
    assert sorted(taken) == list(range(300))
    assert not own_redis.client().exists("jobs", "unacked", "unacked_index")
