"""In the parent: the queue that each message is taken from, which no broker's message says for all kinds of exchange.

RabbitMQ names the consumer, Redis nothing: a routing key is no queue where an exchange copies by pattern, or to all.
"""

from collections.abc import Callable
from typing import Any

_NAME = "harness_queue"


class Arriving:
    """One channel's: which queue the message is from that is being delivered now."""

    def __init__(self, channel: Any) -> None:
        self.queue: str | None = None
        self._usual = channel.basic_consume
        channel.basic_consume = self._consume

    def _consume(self, queue: str, *args: Any, callback: Callable[[Any], Any], **kwargs: Any) -> Any:
        def deliver(message: Any) -> Any:
            self.queue = queue
            try:
                return callback(message)
            finally:
                self.queue = None

        return self._usual(queue, *args, callback=deliver, **kwargs)

    def note(self, message: Any) -> None:
        """Have the message know where it came from."""
        if self.queue is not None:
            setattr(message, _NAME, self.queue)


def read_lists(channel: Any) -> None:
    """On Redis, have the list of each queue read that is consumed from, also of one that a fanout exchange feeds.

    To kombu such a queue is a subscription alone; the relay's copy, which goes to that queue and no other, is in the
    list of its name.
    """
    if not hasattr(channel, "active_fanout_queues"):
        return
    usual = type(channel)

    class Channel(usual):  # type: ignore[misc, valid-type]
        @property
        def active_queues(self) -> list[str]:
            return list(dict.fromkeys(self._active_queues))

    channel.__class__ = Channel


def noted(message: Any) -> str | None:
    """The queue that the message came from, where that was noted."""
    queue: str | None = getattr(message, _NAME, None)
    return queue
