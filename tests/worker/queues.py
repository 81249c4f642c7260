"""What a broker still has of a queue."""

from kombu import Connection
from redis import Redis


def messages(broker_url: str, queue: str = "jobs") -> int:
    """How many messages wait; on a Redis-protocol broker with those that a worker has not acknowledged."""
    if broker_url.startswith("redis"):
        with Redis.from_url(broker_url) as client:
            return int(client.llen(queue)) + int(client.hlen("unacked"))
    with Connection(broker_url) as connection:
        return int(connection.default_channel.queue_declare(queue, passive=True).message_count)
