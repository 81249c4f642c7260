"""On Redis-protocol brokers: fetches over connections that break half-way, and servers that say odd things."""

import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from kombu import Exchange, Queue
from redis.exceptions import RedisError, ResponseError

from harness.dev.valkey import Valkey
from harness.worker import hearing, unanswered
from tests.worker.fetching import calls, consuming, drain, drained, looks, notes, publish, restricted
from tests.worker.proxy import Proxy
from tests.worker.running import until


def test_an_answer_breaks_off_anywhere(own_redis: Valkey) -> None:
    proxy = Proxy(own_redis.url)
    places = (*range(0, 60, 3), *range(60, 340, 40))
    try:
        with consuming(proxy.url, visibility_timeout=3600) as channel:
            for n, at in enumerate(places, 1):
                drained(channel, n)
                proxy.break_off("delivery_tag", at)
                publish(own_redis.url, {"n": n})
                with pytest.raises(channel.connection_errors):
                    drain(channel, n)
                assert drain(channel, n)[-1].payload == {"n": n}
                channel.found[-1].ack()
        assert not own_redis.client().exists("jobs", "unacked", "unacked_index")
    finally:
        proxy.close()


def test_an_answer_arrives_in_single_bytes(own_redis: Valkey) -> None:
    proxy = Proxy(own_redis.url)
    proxy.in_crumbs = True
    try:
        with consuming(proxy.url, visibility_timeout=3600) as channel:
            for n in range(1, 4):
                drained(channel, n)
                publish(own_redis.url, {"n": n})
                assert drain(channel, n)[-1].payload == {"n": n}
    finally:
        proxy.close()


def test_a_fetch_that_reaches_the_server_when_it_was_given_up(
    own_redis: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection was half-open: the network sends it once more after a cut, or the server stood still."""
    monkeypatch.setattr(unanswered, "AGAIN", 0.5)
    proxy = Proxy(own_redis.url)
    try:
        with consuming(proxy.url, visibility_timeout=3600, health_check_interval=1) as channel:
            drained(channel, 1)
            proxy.hold("EVALSHA")
            until(lambda: drained(channel, 1) or proxy.holds, 10, "a fetch")
            given_up = channel.client.connection._sock
            until(lambda: drained(channel, 1) or channel.client.connection._sock is not given_up, 20, "it is noticed")
            drained(channel, 1)
            channel.qos.prefetch_count = 1
            publish(own_redis.url, {"n": 1})
            drain(channel)
            publish(own_redis.url, {"n": 2})
            proxy.release()
            until(lambda: len(notes(own_redis)) == 2, 10, "what was given up has taken a message")
            channel.found[0].ack()
            assert drain(channel, 2)[-1].payload == {"n": 2}
    finally:
        proxy.close()


def test_a_fetch_that_is_broken_into(own_redis: Valkey) -> None:
    """By a signal's handler, say: half an answer would be taken for the next one's."""
    with consuming(own_redis.url, visibility_timeout=3600) as channel:
        drained(channel, 1)
        publish(own_redis.url, {"n": 1})
        connection = channel.client.connection
        usual = connection.read_response

        def read_response(**options: Any) -> Any:
            if channel._in_poll:
                del connection.read_response
                raise SystemExit(0)
            return usual(**options)

        connection.read_response = read_response
        with pytest.raises(SystemExit):
            drain(channel)
        assert own_redis.client().llen("jobs") == 1, "it is back at once"
        publish(own_redis.url, {"n": 2})
        assert sorted(message.payload["n"] for message in drain(channel, 2)) == [1, 2]
        for message in channel.found:
            message.ack()
        assert not own_redis.client().exists("jobs", "unacked", "unacked_index")


def test_a_channel_that_may_take_no_more_is_told_and_stays_connected(own_redis: Valkey) -> None:
    with consuming(own_redis.url, "one", "two") as channel:
        channel.qos.prefetch_count = 1
        drained(channel, 1)
        publish(own_redis.url, {"n": 1}, "one")
        drain(channel)
        connected = channel.client.connection._sock
        for n in range(3):
            publish(own_redis.url, {"n": n}, "two")
            drained(channel, 2)
        assert channel.client.connection._sock is connected
        channel.found[0].ack()
        drain(channel, 2)
        assert channel.client.connection._sock is connected


def test_its_connection_is_ended_meanwhile(own_redis: Valkey) -> None:
    with consuming(own_redis.url) as channel:
        channel.qos.prefetch_count = 1
        publish(own_redis.url, {"n": 1})
        drain(channel)
        own_redis.client().execute_command("CLIENT", "KILL", "TYPE", "normal")
        for _ in range(3):
            drained(channel, 2)
        channel.found[0].ack()
        publish(own_redis.url, {"n": 2})
        assert drain(channel, 2)[1].payload == {"n": 2}


def test_only_lists_that_changed_are_looked_at(own_redis: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "LOOK", 3600.0)
    with consuming(own_redis.url, *(f"queue{n}" for n in range(50))) as channel:
        drained(channel, 1)
        before = calls(own_redis, "rpop")
        for n in range(1, 6):
            publish(own_redis.url, {"n": n}, f"queue{7 * n}")
            drain(channel, n)
        drained(channel, 6)
        assert calls(own_redis, "rpop") - before <= 5 * 3


def test_a_queue_that_is_added_is_looked_at_at_once(own_redis: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "LOOK", 3600.0)
    with consuming(own_redis.url) as channel:
        drained(channel, 1)
        publish(own_redis.url, {"n": 1}, "added")
        channel.consumer.add_queue(Queue("added", Exchange("", "direct"), "added"))
        channel.consumer.consume()
        assert drain(channel)[0].payload == {"n": 1}


def test_a_table_of_who_is_to_be_told_that_is_too_small(own_redis: Valkey) -> None:
    """What the server must forget it tells as a change: that alone must not make a consumer ask on and on."""
    own_redis.client().config_set("tracking-table-max-keys", 1)
    with consuming(own_redis.url, "one", "two") as channel:
        drained(channel, 1)
        before = looks(own_redis)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            drained(channel, 1)
        assert looks(own_redis) - before < 30
        publish(own_redis.url, {"n": 1}, "two")
        assert drain(channel)[0].payload == {"n": 1}


def test_a_server_that_is_busy_with_a_script(own_redis: Valkey) -> None:
    own_redis.client().config_set("busy-reply-threshold", 50)

    def busy() -> None:
        with suppress(ResponseError):
            own_redis.client().eval("while true do end", 0)

    thread = threading.Thread(target=busy)
    with consuming(own_redis.url, unacked_restore_throttle=1_000_000) as channel:
        drained(channel, 1)
        thread.start()
        until(lambda: _is_busy(own_redis), 10, "it is busy")
        connected = channel.client.connection._sock
        until(lambda: drained(channel, 1) or channel._brpop_sent_at + 1 < time.monotonic(), 10, "it was asked")
        for _ in range(5):
            drained(channel, 1)
        own_redis.client().script_kill()
        thread.join()
        assert 1 <= own_redis.client().info("commandstats")["cmdstat_evalsha"]["rejected_calls"] <= 4
        publish(own_redis.url, {"n": 1})
        assert drain(channel)[0].payload == {"n": 1}
        assert channel.client.connection._sock is connected


def _is_busy(server: Valkey) -> bool:
    try:
        server.client().ping()
    except RedisError as error:
        return "BUSY" in str(error)
    return False


@pytest.mark.parametrize("refused", ["-rpop", "-exists", "-zadd"])
def test_a_user_that_may_run_scripts_but_not_what_is_in_this_one(
    own_redis: Valkey, refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    with consuming(restricted(own_redis, refused), visibility_timeout=3600) as channel:
        drained(channel, 1)
        publish(own_redis.url, {"n": 1})
        if refused == "-zadd":  # nor can kombu do without
            with suppress(ResponseError):
                drained(channel, 1)
        else:
            drain(channel)[0].ack()
    assert caplog.text.count("does not run the script") == 1
    assert len(channel.found) + own_redis.client().llen("jobs") == 1
    assert not own_redis.client().exists("unacked")


def test_what_is_no_message_while_the_memory_is_full(own_redis: Valkey) -> None:
    with consuming(own_redis.url) as channel:
        drained(channel, 1)
        own_redis.client().lpush("jobs", b"no message")
        own_redis.client().config_set("maxmemory", "1")
        (message,) = drain(channel)
        assert message.raw_body == b"no message"
        message.ack()
        assert not own_redis.client().exists("jobs", "unacked", "unacked_index")
        own_redis.client().config_set("maxmemory", "0")
