"""Somebody else, who publishes plain JSON to the source's queue."""

from __future__ import annotations

from typing import Any

from kombu import Exchange, Queue

QUEUE = "foreign"


def publish(producer: Any, message_id: str, body: bytes, key: str | None) -> None:
    """One message; `key`: its ordering key."""
    queue = Queue(QUEUE, Exchange(""), routing_key=QUEUE, durable=True)
    producer.publish(
        body,
        exchange="",
        routing_key=QUEUE,
        declare=[queue],
        content_type="application/json",
        content_encoding="utf-8",
        headers={} if key is None else {"x-key": key},
        message_id=message_id,
        delivery_mode=2,
    )
