"""A queue's properties, from the configuration or from the server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from celery import Celery


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """`arguments`: as in a declaration (`x-message-ttl`), a policy's among them. `of_server`: not only configured."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    no_ack: bool = False
    transient: bool = False
    of_server: bool = False
    policy: str = ""

    @property
    def type(self) -> str:
        return str(self.arguments.get("x-queue-type", "classic"))

    @property
    def dead_letter_exchange(self) -> str | None:
        """Where the queue sends what it drops; None: nowhere. The default exchange is ''."""
        found = self.arguments.get("x-dead-letter-exchange")
        return None if found is None else str(found)

    def __str__(self) -> str:
        return f"queue {self.name!r}" + (f" (policy {self.policy!r})" if self.policy else "")


def is_transient(delivery_mode: Any) -> bool:
    """Does this delivery mode, as AMQP or kombu writes it, keep messages in memory only?"""
    return str(delivery_mode) in ("1", "transient")


def configured(app: Celery) -> list[QueueFacts]:
    """The queues that a worker of the app consumes."""
    return [_facts(queue) for _, queue in sorted(app.amqp.queues.consume_from.items())]


def _facts(queue: Any) -> QueueFacts:
    arguments = dict(queue.queue_arguments or {})
    # kombu has an own keyword for these, in seconds where AMQP has milliseconds.
    for name, value, scale in (
        ("x-message-ttl", queue.message_ttl, 1000),
        ("x-expires", queue.expires, 1000),
        ("x-max-length", queue.max_length, 1),
        ("x-max-length-bytes", queue.max_length_bytes, 1),
    ):
        if value is not None:
            arguments[name] = int(value * scale)
    return QueueFacts(
        name=queue.name,
        arguments=arguments,
        durable=bool(queue.durable),
        exclusive=bool(queue.exclusive),
        auto_delete=bool(queue.auto_delete),
        no_ack=bool(queue.no_ack),
        transient=bool(queue.exchange) and is_transient(queue.exchange.delivery_mode),
    )
