"""A row of the inbox as a Celery message again: the same bytes, to its own queue and nobody else's."""

import struct
from collections.abc import Sequence
from typing import Any, Protocol

from amqp.exceptions import FrameSyntaxError
from kombu import Producer

from harness.core.message import job_key
from harness.relay import Sent, Unroutable
from harness.store.inbox import InboxRow
from harness.worker.wire import CAPPED, CONSUMER, DISPATCH, GENERATION, IGNORES, JOB_ID, ORDERED, REPLAY

#: What belongs to the delivery of old, not to the message.
_DROPPED_HEADERS = ("redelivered", "harness_raw")
_KEPT_PROPERTIES = ("correlation_id", "reply_to", "priority", "message_id", "type", "app_id")
#: A header that came in otherwise (a transactional enqueue, another broker) may not fit; the other rows go on.
CANNOT_TRAVEL = (TypeError, ValueError, OverflowError, struct.error, FrameSyntaxError)


class Line(Protocol):
    """A way to send rows over one connection. `spoilt`: nothing more may be sent on it."""

    spoilt: bool

    def send(self, rows: Sequence[InboxRow], sent: Sent) -> Sequence[InboxRow]:
        """Send rows in their order, and put into `sent` what became of them; returns those it has not begun with.

        Raises what the broker or the connection raises. A row that is not in `sent` then may have gone or not.
        """


def publish(producer: Producer, row: InboxRow) -> None:
    """Publish the message of a row, to the default exchange with its queue as routing key: no binding copies it.

    Raises one of CANNOT_TRAVEL where the broker's protocol has no form for it; else what the transport raises.
    """
    message = row.message
    properties = {k: v for k, v in message.properties.items() if k in _KEPT_PROPERTIES and v is not None}
    producer.publish(
        message.body,
        exchange="",
        routing_key=message.queue,
        content_type=message.content_type or "application/data",
        content_encoding=message.content_encoding or "binary",
        headers=headers_of(row),
        delivery_mode=2,
        mandatory=True,
        retry=False,
        **properties,
    )


def headers_of(row: InboxRow) -> dict[str, Any]:
    """The headers under which a row goes out: its message's own, and those of this dispatch."""
    message = row.message
    past = past_times(row)
    headers = {key: value for key, value in message.headers.items() if key not in (*_DROPPED_HEADERS, *past)}
    headers |= {
        CONSUMER: row.consumer,
        GENERATION: row.generation,
        IGNORES: " ".join(past),
        DISPATCH: row.dispatches,
        "retries": row.attempts,
    }
    if job_key(headers.get("id"), message.body) != row.job_id:
        headers[JOB_ID] = row.job_id
        if "id" in headers and "task" in headers:
            headers["id"] = row.job_id
    if row.letter_id is not None and not row.attempts:
        headers[REPLAY] = row.letter_id
    if row.place is not None:
        headers[ORDERED] = row.ordering_key
    if row.capped:
        headers[CAPPED] = True
    return headers


def past_times(row: InboxRow) -> list[str]:
    """Which of the message's own times are past: its eta once it was waited for, its expiry once it was tried."""
    tried = bool(row.attempts) or row.letter_id is not None
    return [name for name, is_past in (("eta", row.generation > 0), ("expires", tried)) if is_past]


def no_form(row: InboxRow, error: Exception) -> Unroutable:
    """What is said of a row whose message is one of CANNOT_TRAVEL."""
    return Unroutable(
        f"this broker's protocol has no form for the message of job {row.job_id} ({type(error).__name__})"
    )
