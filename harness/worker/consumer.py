"""In the parent: the consumer. What Celery would drop with a log line goes to a child that writes the evidence."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from celery import signals
from celery.exceptions import InvalidTaskError
from celery.worker import state as worker_state
from celery.worker.consumer import Consumer as CeleryConsumer

from harness.core.failure import Failure, Kind
from harness.worker import monitor
from harness.worker.channel import lose_nothing
from harness.worker.properties import take_any_properties
from harness.worker.recorder import Recorder
from harness.worker.refused import Refusals
from harness.worker.source_queue import Arriving, noted, read_lists
from harness.worker.stopping import let_accept
from harness.worker.trace import Reply
from harness.worker.wire import Wire, wire_of

log = logging.getLogger("harness")


class Consumer(CeleryConsumer):  # type: ignore[misc]
    """Celery's consumer; installed through `worker_consumer`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refusals = Refusals()
        loop: Callable[..., Any] = vars(self)["loop"]
        self.loop = self._going_on(loop)

    def _going_on(self, loop: Callable[..., Any]) -> Callable[..., Any]:
        """A channel that the broker closes while it consumes is a lost connection: Celery would end the worker.

        RabbitMQ does so when a job takes longer than its consumer time-out, 30 minutes by default.
        """

        def going_on(*args: Any) -> Any:
            try:
                return loop(*args)
            except self.connection_errors:
                raise
            except self.channel_errors as error:
                raise ConnectionResetError(f"the broker closed the channel or refused a command: {error}") from error

        return going_on

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        lose_nothing(self.task_consumer.channel)
        take_any_properties()
        read_lists(self.task_consumer.channel)
        arriving = Arriving(self.task_consumer.channel)
        handle = super().create_task_handler(*args, **kwargs)
        passing = self.connection_errors + self.channel_errors

        def on_task_received(message: Any) -> None:
            arriving.note(message)
            try:
                if not isinstance(message.headers, dict):
                    self.bury(message, Kind.undecodable, TypeError(f"headers are no table: {message.headers!r}"))
                    return
                handle(message)
            except passing:
                raise
            except Exception as error:
                # Celery lets these through to its event loop, which ends the worker, again after each restart.
                self.bury(message, Kind.undecodable, error)

        return on_task_received

    def on_close(self) -> None:
        """Celery's hook at the end, and at a lost connection: forget what was received and is not at work."""
        if worker_state.should_stop is not None and worker_state.should_stop is not False:  # 0 is an exit code
            let_accept(self.pool)
        super().on_close()

    def on_connection_error_after_connected(self, exc: BaseException) -> None:
        """Celery closes the broken connection; what goes wrong in that must not end the worker.

        kombu's Redis transport wants to hand back unacknowledged messages then, over a connection that is no more, and
        raises an AttributeError. The broker hands them back itself, when their visibility time-out is over.
        """
        self._refusals.wait(exc)
        if self.connection is not None:
            self.connection.close = _close_anyway(self.connection.close)
        super().on_connection_error_after_connected(exc)

    def call_soon_ack(self, p: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Celery's way to acknowledge or hand back; a channel that is no more must not end the worker.

        Its message is with the broker again, and will be a duplicate.
        """
        return super().call_soon_ack(_OnAChannel(p), *args, **kwargs)

    def on_unknown_task(self, body: Any, message: Any, exc: BaseException) -> None:
        name = _head(message).get("task", message.headers.get("task"))
        if not isinstance(name, str):
            self.bury(message, Kind.undecodable, InvalidTaskError(f"its task is no text: {name!r}"))
            return
        signals.task_unknown.send(sender=self, message=message, exc=exc, name=name, id=message.headers.get("id"))
        text = f"this worker knows no task {name!r}; is its module imported (`imports`, `include`)?"
        self.bury(message, Kind.unknown_task, LookupError(text))

    def on_decode_error(self, message: Any, exc: BaseException) -> None:
        self.bury(message, Kind.undecodable, exc)

    def on_invalid_task(self, body: Any, message: Any, exc: BaseException) -> None:
        signals.task_rejected.send(sender=self, message=message, exc=exc)
        self.bury(message, Kind.undecodable, exc)

    def on_unknown_message(self, body: Any, message: Any) -> None:
        signals.task_rejected.send(sender=self, message=message, exc=None)
        self.bury(
            message,
            Kind.undecodable,
            ValueError("no Celery message: neither its headers nor its body name a task"),
        )

    def bury(self, message: Any, kind: Kind, error: BaseException) -> None:
        """Have the message recorded with its exact bytes, and acknowledge it when it is."""
        wire = wire_of(message, self.queue_of(message), self.hostname, head=_head(message))
        task = wire.says("task")
        failure = Failure(kind, type(error).__name__, f"{error}")
        # Not the error's text, which may quote the message; the letter has it.
        log.warning("message on queue %s can't be run (%s): %s", wire.message.queue, kind, failure.error_type)

        def done(reply: Reply) -> None:
            if reply.outcome == "unrecorded":
                self.call_soon_ack(message.reject_log_error, log, self.connection_errors, requeue=True)
                return
            self.call_soon_ack(message.ack_log_error, log, self.connection_errors)
            self._tell(wire, reply)

        Recorder(self, wire, failure, task if isinstance(task, str) else None, done, str(message.delivery_tag)).submit()

    def _tell(self, wire: Wire, reply: Reply) -> None:
        """Tell Celery's monitors of a message that was no request, under the id that its letter has."""
        with contextlib.suppress(Exception):
            for event in monitor.of_message(wire, reply.event):
                self.event_dispatcher.send(event.type, **event.fields)

    def queue_of(self, message: Any) -> str:
        """The queue that a message came from; where that was not noted, what its consumer tag or routing key says."""
        if (queue := noted(message)) is not None:
            return queue
        info = message.delivery_info if isinstance(message.delivery_info, dict) else {}
        tag = info.get("consumer_tag")
        for name, active in getattr(self.task_consumer, "_active_tags", {}).items():
            if tag is not None and active == tag:
                return str(name)
        key, exchange = info.get("routing_key"), info.get("exchange") or ""
        for queue in self.app.amqp.queues.consume_from.values():
            if queue.routing_key == key and (queue.exchange.name if queue.exchange else "") == exchange:
                return str(queue.name)
        return str(key or self.app.conf.task_default_queue)


def _head(message: Any) -> dict[str, Any]:
    """What the body of a protocol 1 message says; empty for others, and for what Celery could not decode."""
    payload = getattr(message, "_decoded_cache", None)
    return payload if isinstance(payload, dict) and "task" in payload and "task" not in message.headers else {}


def _close_anyway(close: Callable[[], None]) -> Callable[[], None]:
    def close_anyway() -> None:
        try:
            close()
        except Exception as error:
            log.warning("the broken connection to the broker was not closed in good order: %r", error)

    return close_anyway


class _OnAChannel:
    """Calls `verb`, a method of a message."""

    def __init__(self, verb: Callable[..., Any]) -> None:
        self.verb = verb
        # By name and owner, Celery's pool tells at shutdown which callbacks still have to run.
        self.__name__ = getattr(verb, "__name__", "")
        self.__self__ = getattr(verb, "__self__", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.verb(*args, **kwargs)
        except AttributeError as error:  # what kombu's Redis transport has for a closed channel
            log.warning("a message could not be acknowledged, its connection is gone; it comes again: %r", error)
