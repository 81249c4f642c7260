"""One Redis client serves a channel for as long as its pool of connections is the same."""

from kombu import Connection

from harness.worker.clients import keep_client


def test_one_client_per_pool(redis_url: str) -> None:
    with Connection(redis_url) as connection:
        channel = connection.default_channel
        keep_client(channel)
        first = channel._create_client()
        assert channel._create_client() is first
        queue = connection.SimpleQueue("one")
        queue.put("hello")
        assert queue.get(timeout=5).payload == "hello"
        queue.close()
        channel._disconnect_pools()
        second = channel._create_client()
        assert second is not first
        assert second.connection_pool is channel.pool
        assert second.ping()


def test_other_transports_have_none() -> None:
    with Connection("memory://") as connection:
        keep_client(connection.default_channel)
