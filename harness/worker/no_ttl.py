"""A job that expires is refused by its worker, with a letter; not dropped by the broker, without a trace."""

from typing import Any

from celery import signals

from harness.worker.wire import SENT_AT


@signals.before_task_publish.connect  # type: ignore[untyped-decorator]
def _keep(headers: Any = None, properties: Any = None, **_: Any) -> None:
    """Celery gives the message a time to live beside its `expires`, after which RabbitMQ removes it from the queue."""
    if isinstance(headers, dict) and SENT_AT in headers and isinstance(properties, dict):
        properties.pop("expiration", None)
