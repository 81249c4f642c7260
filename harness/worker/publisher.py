"""A row of the inbox as a Celery message again: the same bytes, to its own queue and nobody else's."""

import contextlib
import struct
from typing import Any

from amqp.exceptions import FrameSyntaxError
from celery import Celery
from kombu import Producer

from harness.core.message import job_key
from harness.relay import Unroutable
from harness.store.inbox import InboxRow
from harness.worker.wire import CONSUMER, DISPATCH, GENERATION, IGNORES, JOB_ID, REPLAY

#: What belongs to the delivery of old, not to the message.
_DROPPED_HEADERS = ("redelivered", "harness_raw")
#: A header that came in otherwise (a transactional enqueue, another broker) may not fit; the other rows go on.
_CANNOT_TRAVEL = (TypeError, ValueError, OverflowError, struct.error, FrameSyntaxError)
_KEPT_PROPERTIES = ("correlation_id", "reply_to", "priority", "message_id", "type", "app_id")


class Publisher:
    """Publishes rows over one connection; every call waits for the broker's confirm where the transport has one.

    Messages go to the default exchange with the stored queue as routing key, so that no binding copies them elsewhere.
    """

    def __init__(self, app: Celery) -> None:
        self.app = app
        self._connection: Any = None
        self._producer: Any = None
        self._returned: list[str] = []

    def __call__(self, row: InboxRow) -> None:
        """Send one row. Raises Unroutable where the broker says that the queue does not exist."""
        try:
            self._send(row)
        except Unroutable:
            raise
        except _CANNOT_TRAVEL as error:
            self.close()
            text = f"this broker's protocol has no form for the message of job {row.job_id} ({type(error).__name__})"
            raise Unroutable(text) from error
        except Exception:
            self.close()
            raise

    def _send(self, row: InboxRow) -> None:
        producer = self._open()
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
        properties = {k: v for k, v in message.properties.items() if k in _KEPT_PROPERTIES and v is not None}
        self._returned.clear()
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
        if self._returned:
            raise Unroutable(
                f"the broker has no queue {message.queue!r}: job {row.job_id} stays in the inbox until there is one"
            )

    def _open(self) -> Any:
        if self._producer is None:
            self._connection = self.app.connection_for_write()
            options = dict(self._connection.transport_options or {})
            amqp = self._connection.transport.driver_type == "amqp"
            if amqp:
                options["confirm_publish"] = True
                self._connection.transport_options = options
            self._connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)
            self._producer = Producer(self._connection.default_channel, on_return=self._on_return if amqp else None)
        return self._producer

    def _on_return(self, error: Any, exchange: Any, routing_key: Any, message: Any) -> None:
        self._returned.append(str(error))

    def close(self) -> None:
        """Drop the connection; the next call opens a new one."""
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.release()


def _past(row: InboxRow) -> list[str]:
    """Which of the message's own times are past: its eta once it was waited for, its expiry once it was tried."""
    tried = bool(row.attempts) or row.letter_id is not None
    return [name for name, is_past in (("eta", row.generation > 0), ("expires", tried)) if is_past]
