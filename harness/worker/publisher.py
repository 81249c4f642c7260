"""A row of the inbox as a Celery message again: the same bytes, to its own queue and nobody else's."""

import contextlib
import struct
from collections.abc import Sequence
from typing import Any

import amqp
from amqp.exceptions import FrameSyntaxError
from celery import Celery
from kombu import Producer

from harness.core.message import job_key
from harness.relay import Sent, Unroutable
from harness.store.inbox import InboxRow
from harness.worker.wire import CONSUMER, DISPATCH, GENERATION, IGNORES, JOB_ID, ORDERED, REPLAY

#: What belongs to the delivery of old, not to the message.
_DROPPED_HEADERS = ("redelivered", "harness_raw")
#: A header that came in otherwise (a transactional enqueue, another broker) may not fit; the other rows go on.
_CANNOT_TRAVEL = (TypeError, ValueError, OverflowError, struct.error, FrameSyntaxError)
#: Seconds in which the broker has to say something of what was published; a RabbitMQ without memory says nothing.
CONFIRMED_WITHIN = 30.0
_KEPT_PROPERTIES = ("correlation_id", "reply_to", "priority", "message_id", "type", "app_id")


class Publisher:
    """Publishes rows over one connection; a batch waits once for the broker's confirms, where the transport has them.

    Messages go to the default exchange with the stored queue as routing key, so that no binding copies them elsewhere.
    """

    def __init__(self, app: Celery) -> None:
        self.app = app
        self._connection: Any = None
        self._producer: Any = None
        self._confirms: _Confirms | None = None

    def __call__(self, rows: Sequence[InboxRow]) -> Sent:
        """Send rows, in their order; returns what became of each. Raises nothing: `Sent.error` has what went wrong."""
        sent = Sent()
        try:
            for row in rows:
                self._send(row, sent)
            self._settle(sent)
        except Exception as error:
            self.close()
            sent.error = error
        return sent

    def _send(self, row: InboxRow, sent: Sent) -> None:
        producer = self._open()
        if self._confirms is not None:
            self._confirms.expect(row)
        try:
            _publish(producer, row)
        except _CANNOT_TRAVEL as error:
            if self._confirms is not None:
                self._confirms.forget(row)
            self._settle(sent)
            self.close()
            text = f"this broker's protocol has no form for the message of job {row.job_id} ({type(error).__name__})"
            sent.refused[row.id] = Unroutable(text)
            return
        if self._confirms is None:
            sent.confirmed.add(row.id)

    def _settle(self, sent: Sent) -> None:
        """Wait until the broker has said what became of all that was sent."""
        if self._confirms is None:
            return
        try:
            while self._confirms.open:
                self._connection.drain_events(timeout=CONFIRMED_WITHIN)
        finally:
            self._confirms.tell(sent)

    def _open(self) -> Any:
        if self._producer is None:
            self._connection = self.app.connection_for_write()
            # Not a confirm for each message, which would cost each a round trip: they are waited for together.
            self._connection.transport_options = dict(self._connection.transport_options or {}, confirm_publish=False)
            self._connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)
            channel = self._connection.default_channel
            self._confirms = _Confirms(channel) if isinstance(channel, amqp.Channel) else None
            self._producer = Producer(channel, auto_declare=False)
        return self._producer

    def close(self) -> None:
        """Drop the connection; the next call opens a new one."""
        connection, self._connection, self._producer, self._confirms = self._connection, None, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.release()


class _Confirms:
    """What a RabbitMQ channel says of the messages that were published on it: confirmed, refused, or no such queue."""

    def __init__(self, channel: amqp.Channel) -> None:
        self.open: dict[int, InboxRow] = {}
        self._number = 0
        self._confirmed: list[InboxRow] = []
        self._refused: list[InboxRow] = []
        self._returned: set[tuple[Any, ...]] = set()
        channel.events["basic_ack"].add(self._on_ack)
        channel.events["basic_nack"].add(self._on_nack)
        channel.events["basic_return"].add(self._on_return)
        channel.confirm_select()

    def expect(self, row: InboxRow) -> None:
        """`row` is published next: the broker counts the messages of a channel from 1."""
        self._number += 1
        self.open[self._number] = row

    def forget(self, row: InboxRow) -> None:
        """It could not be published; nothing else is, on this channel."""
        self.open.pop(self._number)

    def tell(self, sent: Sent) -> None:
        """Move what is known into `sent`."""
        for row in self._confirmed:
            if (row.consumer, row.generation, row.message.headers.get("id"), row.message.body) in self._returned:
                text = f"the broker has no queue {row.message.queue!r}: job {row.job_id} waits in the inbox for one"
                sent.refused[row.id] = Unroutable(text)
            else:
                sent.confirmed.add(row.id)
        for row in self._refused:
            text = f"the broker refuses more messages in queue {row.message.queue!r}: job {row.job_id} waits here"
            sent.refused[row.id] = Unroutable(text)
        self._confirmed, self._refused, self._returned = [], [], set()

    def _on_ack(self, tag: int, multiple: bool) -> None:
        self._confirmed += self._taken(tag, multiple)

    def _on_nack(self, tag: int, multiple: bool) -> None:
        self._refused += self._taken(tag, multiple)

    def _taken(self, tag: int, multiple: bool) -> list[InboxRow]:
        tags = [known for known in self.open if known <= tag] if multiple else [tag]
        return [self.open.pop(known) for known in tags if known in self.open]

    def _on_return(self, error: Any, exchange: Any, routing_key: Any, message: Any) -> None:
        """There is no queue of that name. The broker says so before it confirms the message."""
        headers = message.properties.get("application_headers", {})
        body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
        self._returned.add((headers.get(CONSUMER), headers.get(GENERATION), headers.get("id"), body))


def _publish(producer: Producer, row: InboxRow) -> None:
    message = row.message
    past = _past(row)
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
    properties = {k: v for k, v in message.properties.items() if k in _KEPT_PROPERTIES and v is not None}
    producer.publish(
        message.body,
        exchange="",
        routing_key=message.queue,
        content_type=message.content_type or "application/data",
        content_encoding=message.content_encoding or "binary",
        headers=headers,
        delivery_mode=2,
        mandatory=True,
        retry=False,
        **properties,
    )


def _past(row: InboxRow) -> list[str]:
    """Which of the message's own times are past: its eta once it was waited for, its expiry once it was tried."""
    tried = bool(row.attempts) or row.letter_id is not None
    return [name for name, is_past in (("eta", row.generation > 0), ("expires", tried)) if is_past]
