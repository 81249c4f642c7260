"""Sends an item exactly as it is, also what no client of the broker would send."""

from __future__ import annotations

from typing import Any

import amqp
from amqp.exceptions import AMQPError
from amqp.serialization import dumps, loads
from kombu import Connection, Queue

from tests.fuzz.mutate import Item

_PROPERTIES = ("priority", "delivery_mode", "correlation_id", "reply_to", "message_id", "type", "app_id")
_OCTETS = ("priority", "delivery_mode")


class Sender:
    """Puts items into the queue `jobs`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.refused = 0
        self._open()

    def _open(self) -> None:
        self.connection = Connection(self.url, transport_options={"confirm_publish": True})
        self.channel: Any = self.connection.default_channel
        Queue("jobs", channel=self.channel, durable=True, routing_key="jobs").declare()

    def send(self, item: Item) -> bool:
        """Over AMQP, an item is changed first to what its tables and properties can hold. False where the broker itself
        refuses it, and so nobody has it."""
        if item.raw is not None:
            self.channel.client.lpush("jobs", item.raw)
            return True
        properties, headers = fit(item)
        message = amqp.Message(item.body, application_headers=headers, **properties)
        try:
            self.channel.basic_publish(message, exchange="", routing_key="jobs")
        except (AMQPError, OSError):
            self.refused += 1
            self._open()
            return False
        return True

    def close(self) -> None:
        self.connection.release()


def fit(item: Item) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Properties and headers that can travel; what can't is sent as text. Changes the item to what is sent."""
    headers = {key: _travels(value) for key, value in item.headers.items() if _key_travels(key)}
    # As they are read on the other side, where bytes may be a text, and a time has no zone.
    item.headers = loads("F", dumps("F", [headers]), 0)[0][0]
    properties: dict[str, Any] = {"delivery_mode": 2}
    for name in ("content_type", "content_encoding"):
        value = getattr(item, name)
        if not isinstance(value, (str, bytes)):
            value = repr(value)
        setattr(item, name, value[:60])
        properties[name] = value[:60]
    for name, value in item.properties.items():
        if name in _OCTETS:
            properties[name] = value % 256 if type(value) is int else 1
        elif name in _PROPERTIES:
            properties[name] = value[:60] if isinstance(value, (str, bytes)) else repr(value)[:60]
    return properties, headers


def _travels(value: Any) -> Any:
    try:
        dumps("F", [{"x": value}])
    except Exception:
        return repr(value)[:500]
    return value


def _key_travels(key: Any) -> bool:
    return len(key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key) < 256
