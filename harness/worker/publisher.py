"""The relay's connection to the broker: a batch of rows goes out in one of three ways, as the transport allows."""

import contextlib
from collections.abc import Sequence
from typing import Any

import amqp
from celery import Celery
from kombu import Producer

from harness.relay import Sent
from harness.store.inbox import InboxRow
from harness.worker.confirmed import Confirmed
from harness.worker.one_by_one import OneByOne
from harness.worker.outgoing import Line
from harness.worker.pipelined import Pipelined

#: Seconds in which a Redis-protocol server has to answer, and in which it has to be reached, unless the project says.
ANSWERED_WITHIN, REACHED_WITHIN = 30.0, 5.0


class Publisher:
    """Publishes rows over one connection; a batch waits once for what the broker says of it, where that can be had.

    Messages go to the default exchange with the stored queue as routing key, so that no binding copies them elsewhere.
    """

    def __init__(self, app: Celery) -> None:
        self.app = app
        self._connection: Any = None
        self._line: Line | None = None

    def __call__(self, rows: Sequence[InboxRow]) -> Sent:
        """Send rows, in their order; returns what became of each. Raises nothing: `Sent.error` has what went wrong."""
        sent = Sent()
        try:
            while rows:
                line = self._open()
                rows = line.send(rows, sent)
                if line.spoilt:
                    self.close()
        except Exception as error:
            self.close()
            sent.error = error
        return sent

    def _open(self) -> Line:
        if self._line is None:
            self._connection = self.app.connection_for_write()
            self._connection.transport_options = _options(self._connection)
            self._connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)
            self._line = _line(self._connection)
        return self._line

    def close(self) -> None:
        """Drop the connection; the next call opens a new one."""
        connection, self._connection, self._line = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.release()


def _options(connection: Any) -> dict[str, Any]:
    """The project's own transport options, and what the relay needs beside them."""
    options = dict(connection.transport_options or {})
    # Not a confirm for each message, which would cost each a round trip: they are waited for together.
    options["confirm_publish"] = False
    if connection.transport.driver_type == "redis":
        # kombu would wait for ever for a server that hangs, or whose machine is gone without a word.
        options.setdefault("socket_timeout", ANSWERED_WITHIN)
        options.setdefault("socket_connect_timeout", REACHED_WITHIN)
    return options


def _line(connection: Any) -> Line:
    channel = connection.default_channel
    producer = Producer(channel, auto_declare=False)
    if isinstance(channel, amqp.Channel):
        return Confirmed(connection, producer)
    if producer.supports_batch_publish:
        return Pipelined(producer)
    return OneByOne(producer)
