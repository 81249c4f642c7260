"""In the parent, on RabbitMQ: a message whose properties py-amqp cannot read.

A text that is no UTF-8, a time after the year 9999: py-amqp raises in the middle of Celery's event loop, which ends the
worker, and then each next worker that the broker gives the message to. Here it becomes a message without headers, which
is recorded like any other that is none of Celery's.
"""

import logging
from typing import Any

from amqp import serialization
from amqp.basic_message import Message

log = logging.getLogger("harness")


def take_any_properties() -> None:
    """Have py-amqp deliver, in this process, what it can't read; once. `harness_raw` is the frame in hexadecimal."""
    usual = serialization.PROPERTY_CLASSES[Message.CLASS_ID]
    if isinstance(usual, _Patient):
        return
    serialization.PROPERTY_CLASSES[Message.CLASS_ID] = _Patient(usual)


class _Patient:
    """py-amqp's reader, which takes a buffer and an offset and returns the properties and the next offset."""

    def __init__(self, usual: Any) -> None:
        self.usual = usual

    def __call__(self, buf: Any, offset: int) -> tuple[dict[str, Any], int]:
        try:
            read: tuple[dict[str, Any], int] = self.usual(buf, offset)
            return read
        except Exception as error:
            log.warning("a message has properties that can't be read: %s", type(error).__name__)
            return {"application_headers": {"harness_raw": bytes(buf[offset:]).hex()}}, len(buf)
