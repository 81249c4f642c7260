"""Messages as they travel: sent raw, taken raw, counted."""

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from kombu import Connection, Producer, Queue
from kombu.utils.json import loads as kombu_loads

from harness.worker.wire import RELAY_HEADERS
from tests.worker.running import until

JSON = "application/json"
#: What a transport or the relay adds on the way.
ADDED = (*RELAY_HEADERS, "retries")


@dataclass
class Raw:
    """One message. `compressed` bodies carry the header that says so."""

    body: bytes
    headers: dict[str, Any] = field(default_factory=dict)
    content_type: str = JSON
    content_encoding: str = "utf-8"
    properties: dict[str, Any] = field(default_factory=dict)

    def own_headers(self) -> dict[str, Any]:
        """The headers without what the relay adds."""
        return {key: value for key, value in self.headers.items() if key not in ADDED}


def body(args: Any = (), kwargs: Any = None) -> bytes:
    """The JSON body of Celery's protocol 2."""
    return json.dumps([args, {} if kwargs is None else kwargs, {"callbacks": None, "errbacks": None}]).encode()


class Wires:
    """A connection of one's own to the broker."""

    def __init__(self, url: str, queue: str = "jobs") -> None:
        self.connection = Connection(url)
        self.queue = queue
        self.amqp = self.connection.transport.driver_type == "amqp"
        self.channel: Any = self.connection.default_channel
        if self.amqp:
            self.channel.auto_decode = False

    def send(self, raw: Raw, queue: str | None = None) -> None:
        """Publish exactly this; waits for the confirm where there is one."""
        name = queue or self.queue
        Producer(self.channel).publish(
            raw.body,
            exchange="",
            routing_key=name,
            content_type=raw.content_type,
            content_encoding=raw.content_encoding,
            headers=dict(raw.headers),
            declare=[Queue(name, channel=self.channel, durable=True, routing_key=name)],
            delivery_mode=2,
            **raw.properties,
        )

    def take(self, queue: str | None = None) -> Raw | None:
        """The next message as it is, bytes unchanged; it is gone from the queue then."""
        name = queue or self.queue
        if self.amqp:
            got = self.channel.basic_get(name, no_ack=True)
            if got is None:
                return None
            known = dict(got.properties)
            headers = known.pop("application_headers", {})
            kind, encoding = known.pop("content_type", None), known.pop("content_encoding", None)
            return Raw(bytes(got.body or b""), headers, kind, encoding, known)
        lists = self.lists(name)
        packed = next((found for key in lists if (found := self.channel.client.rpop(key)) is not None), None)
        if packed is None:
            return None
        envelope = kombu_loads(packed)
        data = envelope["body"]
        data = base64.b64decode(data) if envelope["properties"]["body_encoding"] == "base64" else data.encode()
        return Raw(
            data,
            envelope["headers"],
            envelope["content-type"],
            envelope["content-encoding"],
            envelope["properties"],
        )

    def left(self) -> int:
        """How many messages the queue holds: ready and, on a Redis-protocol broker, unacknowledged."""
        if self.amqp:
            return int(self.channel.queue_declare(self.queue, passive=True).message_count)
        client = self.channel.client
        return sum(int(client.llen(key)) for key in self.lists(self.queue)) + int(client.hlen("unacked"))

    @staticmethod
    def lists(queue: str) -> list[str]:
        """The lists of a queue on a Redis-protocol broker: one per priority step."""
        return [queue, *(f"{queue}\x06\x16{step}" for step in (3, 6, 9))]

    def empty(self, seconds: float = 20.0) -> None:
        """Wait until nothing is left."""
        until(lambda: self.left() == 0, seconds, "the queue is empty, nothing unacknowledged")

    def close(self) -> None:
        self.connection.release()
