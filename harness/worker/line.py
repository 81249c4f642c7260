"""A receiver's line to one queue: declared or found, consumed from, looked for again where it is not there."""

import logging
from collections.abc import Callable
from typing import Any

from amqp.exceptions import AccessRefused, NotFound, PreconditionFailed
from kombu import Consumer, Queue

from harness.core.errors import UsageError
from harness.worker.channel import lose_nothing
from harness.worker.source import NO_STREAMS, Source

log = logging.getLogger("harness")

#: Seconds until a queue that is not there is looked for again.
MISSING = 15.0
#: RabbitMQ puts it on each message of a stream.
STREAM_OFFSET = "x-stream-offset"
MAKE = "Make the queue, or give the user of the broker its rights"
ANOTHER = "Name another queue"


class Line:
    """One source's channel: `most` messages at a time, each is given to `take`."""

    def __init__(self, source: Source, most: int, take: Callable[[Source, Any], None]) -> None:
        self.source, self.most, self.take = source, most, take
        self.consumer: Any = None
        self._connection: Any = None
        self._said: str | None = None
        self._doubtful: list[Any] = []

    @property
    def is_open(self) -> bool:
        return self.consumer is not None

    def begin(self, connection: Any) -> bool:
        """Consume, unless it does already; True when it has begun. What is wrong with its queue alone is logged."""
        if self.is_open:
            return False
        try:
            queue = self._declared(connection)
        except (NotFound, AccessRefused, PreconditionFailed) as error:
            self._refused(str(error))
            return False
        except UsageError as error:
            self._refused(str(error), ANOTHER)
            return False
        channel = connection.channel()
        lose_nothing(channel)
        consumer = Consumer(channel, [queue(channel)], auto_declare=False, on_message=self._take, accept=None)
        consumer.on_decode_error = lambda message, error: self._take(message)
        consumer.qos(prefetch_count=self.most)
        try:
            consumer.consume()
        except (NotFound, AccessRefused) as error:
            self._refused(str(error))
            return False
        self.consumer, self._said, self._connection = consumer, None, connection
        return True

    def _declared(self, connection: Any) -> Any:
        queue = self.source.queue
        if self.source.declare:
            try:
                with connection.channel() as channel:
                    queue(channel).declare()
                return queue
            except PreconditionFailed as error:
                if _says_stream(error):
                    raise UsageError(NO_STREAMS) from error
                log.warning(
                    "receive: queue %s is there with other properties, and is used as it is: %s", queue.name, error
                )
            except AccessRefused as error:
                log.warning("receive: queue %s may not be declared, and is used as it is: %s", queue.name, error)
        if connection.transport.driver_type == "amqp":
            with connection.channel() as channel:
                queue(channel).queue_declare(passive=True)
        return queue

    def _refused(self, why: str, do: str = MAKE) -> None:
        if why != self._said:
            self._said = why
            text = "receive: source %s gets nothing from queue %s: %s. %s; it is looked for every %g s"
            log.error(text, self.source.name, self.source.queue.name, why.rstrip("."), do, MISSING)

    def _take(self, message: Any) -> None:
        if STREAM_OFFSET in (message.headers or ()):
            # Not asked here: the broker's answer would be waited for within the wait that has brought this message,
            # and another message like it, coming meanwhile, would have its answer taken for ours.
            self._doubtful.append(message)
            return
        self.take(self.source, message)

    def resolve(self) -> None:
        """Ask whether messages that look like a stream's are from one: then the queue is left, with nothing taken."""
        if not self._doubtful:
            return
        doubtful, self._doubtful = self._doubtful, []
        if self._is_stream():
            self._refused(NO_STREAMS, ANOTHER)
            self.end()
            return
        for message in doubtful:
            self.take(self.source, message)

    def _is_stream(self) -> bool:
        """Anybody may write that header: the broker tells, when it is asked to make another queue of that name."""
        try:
            with self._connection.channel() as channel:
                other = Queue(self.source.queue.name, channel=channel, durable=True)
                other.queue_arguments = {"x-queue-type": "classic"}
                other.queue_declare()
        except PreconditionFailed as error:
            return _says_stream(error)
        except AccessRefused:
            return True  # it can't be asked
        return False

    def end(self) -> None:
        """Take no more."""
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            consumer.cancel()
        self._doubtful.clear()


def _says_stream(error: PreconditionFailed) -> bool:
    return "'x-queue-type'" in str(error) and "'stream'" in str(error)
