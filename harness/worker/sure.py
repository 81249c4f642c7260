"""A producer for what comes after a job: each message is with the broker, or a letter stands for it, or it is held.

Celery's canvas publishes with whatever `app.producer_or_acquire` hands out. So a group whose second member can't be
sent still sends the third, and what Celery itself sends (a chord's body, the errbacks of a body) is held as well.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from amqp.exceptions import ChannelError
from celery import Celery
from kombu.transport.virtual import Channel as VirtualChannel

from harness.worker.holding import HOPELESS, NO_ROUTE, NoRoute, hold
from harness.worker.transport import is_amqp

log = logging.getLogger("harness")

#: kombu's own tries, in which it opens a connection that has gone stale.
_OWN_TRIES = {"max_retries": 2, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.2}
#: Called with the body, the options of the publish and the error where a message can never be sent.
GiveUp = Callable[[Any, dict[str, Any], Exception], None]


class Sure:
    """Stands where Celery's sender has its producer.

    `acquire` hands out a real one. `seconds` and `what` are `hold`'s. `given_up` says what could not be sent; a task
    that could not be sent does not end the sending of its group.
    """

    def __init__(self, app: Celery, acquire: Any, seconds: float, what: str, give_up: GiveUp) -> None:
        self.app, self._acquire, self.seconds, self.what, self._give_up = app, acquire, seconds, what, give_up
        self.given_up: Exception | None = None

    @property
    def connection(self) -> Any:
        """Asked for the kinds of errors that it knows; never opened."""
        return self.app.connection_for_write()

    def revive(self, _: Any) -> None:
        """Celery's sender asks for this between its own tries; each of ours takes a producer of its own."""

    def publish(self, body: Any, **options: Any) -> None:
        """Publish a task's message, or give it up. Raises Unpublished."""
        headers = options.get("headers") or {}
        if not ("task" in headers and "id" in headers):
            with contextlib.suppress(Exception):  # an event for monitors, which may be lost
                self._publish(body, options)
            return
        if options.get("retry"):
            # The waiting is done by `hold`. What a signature wants may have no end.
            options["retry_policy"] = _OWN_TRIES
        if is_amqp(self.app.conf):
            options.setdefault("mandatory", True)  # what no queue takes comes back: else it is dropped without a word
        try:
            hold(lambda: self._publish(body, options), self.seconds, self.what)
        except HOPELESS as error:
            self.given_up = error
            self._give_up(body, options, error)

    def _publish(self, body: Any, options: dict[str, Any]) -> None:
        with self._acquire() as producer, producer.connection._reraise_as_library_errors():
            try:
                producer.publish(body, **options)
                _refuse_dropped(producer.channel, options)
            except ChannelError as error:
                if error.reply_code == NO_ROUTE:
                    # Its confirm is still to come: the next message on this channel would take it for its own.
                    producer.connection.collect()
                raise


def _refuse_dropped(channel: Any, options: dict[str, Any]) -> None:
    """Raise NoRoute where a Redis-protocol broker has dropped the message: kombu says nothing of it."""
    exchange = getattr(options.get("exchange"), "name", options.get("exchange"))
    if not exchange or not isinstance(channel, VirtualChannel):
        return
    if channel.typeof(exchange).type == "fanout":
        return  # it goes to whoever listens
    key = options.get("routing_key") or ""
    if not channel._lookup(exchange, key):
        raise NoRoute(f"no queue is bound to the exchange {exchange!r} with {key!r}")


_SURE: ContextVar[Sure | None] = ContextVar("harness_sure", default=None)


@contextmanager
def surely(app: Celery, seconds: float, what: str, give_up: GiveUp) -> Iterator[Sure]:
    """Whatever is published inside of the block is held, and given up for good only with a word of it."""
    sure = Sure(app, _real(app), seconds, what, give_up)
    token = _SURE.set(sure)
    try:
        yield sure
    finally:
        _SURE.reset(token)


class _Acquire:
    """`app.producer_or_acquire`, which hands out the sure producer inside of `surely`."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __call__(self, producer: Any = None) -> Any:
        sure = _SURE.get()
        return self.real(producer) if sure is None or producer is not None else nullcontext(sure)


def _real(app: Celery) -> Any:
    """The app's own way to a producer; ours is put in its place where it is not there yet."""
    found = app.producer_or_acquire
    if isinstance(found, _Acquire):
        return found.real
    app.producer_or_acquire = _Acquire(found)
    return found
