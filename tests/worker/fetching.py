"""Channels that fetch from a Redis-protocol broker, and what the broker says of it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kombu import Connection, Consumer, Exchange, Queue

from harness.dev.valkey import Valkey
from harness.worker.channel import lose_nothing
from tests.worker.running import until


@contextmanager
def consuming(url: str, *names: str, kombus: bool = False, no_ack: bool = False, **options: Any) -> Iterator[Any]:
    """A channel that consumes the queues `names`; what it was given is in `channel.found`."""
    with Connection(url, transport_options={"visibility_timeout": 1, **options}) as connection:
        channel = connection.channel()
        if not kombus:
            lose_nothing(channel)
        channel.found = []
        queues = [Queue(name, Exchange("", "direct"), name, channel=channel) for name in names or ("jobs",)]
        consumer = Consumer(channel, queues, on_message=channel.found.append, accept=["json"], no_ack=no_ack)
        consumer.consume()
        channel.consumer = consumer
        yield channel


def drain(channel: Any, count: int = 1, seconds: float = 10.0) -> list[Any]:
    """Wait until `channel` was given so many messages."""
    until(lambda: drained(channel, count), seconds, f"{count} messages, not {len(channel.found)}")
    return list(channel.found)


def drained(channel: Any, count: int) -> bool:
    """Wait a moment; was `channel` given so many messages?"""
    try:
        channel.connection.client.drain_events(timeout=0.1)
    except TimeoutError:
        pass
    return len(channel.found) >= count


def publish(url: str, body: Any, queue: str = "jobs", **options: Any) -> None:
    with Connection(url, transport_options=options.pop("transport", {})) as connection:
        connection.Producer().publish(body, routing_key=queue, **options)


def notes(server: Valkey) -> list[Any]:
    return [json.loads(one) for one in server.client().hvals("unacked")]


def calls(server: Valkey, command: str) -> int:
    return int(server.client().info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


def looks(server: Valkey) -> int:
    """Fetches that found nothing."""
    return calls(server, "exists")


def restricted(server: Valkey, rules: str) -> str:
    """URL for a user without some rights."""
    server.client().execute_command("ACL", "SETUSER", "limited", "on", ">limited", "~*", "&*", "+@all", *rules.split())
    return server.url.replace(f":{server.password}@", "limited:limited@")
