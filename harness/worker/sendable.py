"""The message that `.delay()` would have sent: made by Celery's own code and kept where it would be published."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kombu import Queue, compression
from kombu.common import Broadcast
from kombu.exceptions import SerializerNotInstalled
from kombu.serialization import dumps

from harness.core.errors import UsageError
from harness.core.message import Message
from harness.core.text import safe_repr
from harness.worker.asked import WrongStep, check_steps
from harness.worker.enqueue_options import Options, expires_of, labels_of

if TYPE_CHECKING:
    from harness.worker.task import JobTask

#: What Celery's sender adds that does not say what the message is.
_OF_A_PUBLISH = ("expiration", "mandatory", "immediate", "retry", "retry_policy", "timeout", "confirm_timeout")


class _Kept:
    """Stands where Celery's sender has its producer, and keeps what it would publish."""

    def publish(
        self,
        body: Any,
        *,
        exchange: Any = None,
        routing_key: Any = None,
        serializer: Any = None,
        compression: Any = None,
        headers: Any = None,
        declare: Any = None,
        **properties: Any,
    ) -> None:
        self.body, self.serializer, self.compression = body, serializer, compression
        self.headers, self.properties = headers, properties
        self.exchange, self.routing_key = getattr(exchange, "name", exchange), routing_key


def message_of(
    task: "JobTask",
    job_id: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Options,
    priority: int | None,
) -> tuple[Message, datetime | None]:
    """The message, and when it expires. UsageError for what cannot be, and what the serialiser raises."""
    app = task.app
    passed: dict[str, Any] = dict(task._get_exec_options()) | dict(options.passed)
    if task._dump_pydantic_arguments is not None and passed.get("serializer") != "pickle":
        args, kwargs = task._dump_pydantic_arguments(args, kwargs)
    limits = passed.pop("time_limit", None), passed.pop("soft_time_limit", None)
    expires = expires_of(options.expires, passed.pop("expires", None))
    headers = passed.pop("headers", None)
    if headers is not None and not isinstance(headers, Mapping):
        raise UsageError(f"headers={headers!r}: they must be a mapping of names to values.")
    headers = task.job_headers(headers)
    headers |= {name: value for name, value in labels_of(options) if value is not None}
    shadow = passed.pop("shadow", None) or task.shadow_name(args, kwargs, passed)
    links = [_several(passed.pop(name, None)) for name in ("link", "link_error")]
    try:
        check_steps({"callbacks": links[0], "errbacks": links[1]})
    except WrongStep as error:
        raise UsageError(f"What is to come after {task.name} could never be sent: {error}.") from error
    if priority is not None:
        passed["priority"] = priority
    if not isinstance(passed.get("queue"), str | Queue | None):
        raise UsageError(f"queue={passed['queue']!r}: it must be a name, or a kombu.Queue.")
    routed = app.amqp.router.route(passed, task.name, args, kwargs, task)
    queue = routed.get("queue")
    root, parent = _family(app, routed)
    made = app.amqp.as_task_v2(
        job_id,
        task.name,
        tuple(args),
        dict(kwargs),
        expires=expires,
        callbacks=links[0],
        errbacks=links[1],
        reply_to=app.thread_oid,
        time_limit=limits[0],
        soft_time_limit=limits[1],
        root_id=root,
        parent_id=parent,
        shadow=shadow,
        ignore_result=task.ignore_result,
    )
    kept = _Kept()
    app.amqp.send_task_message(kept, task.name, made, headers=headers, **routed)
    content_type, encoding, body = _encoded(kept)
    message = Message(
        body=body.encode("utf-8") if isinstance(body, str) else bytes(body),
        content_type=content_type,
        content_encoding=encoding,
        headers=kept.headers,
        properties={k: v for k, v in kept.properties.items() if k not in _OF_A_PUBLISH and v is not None},
        queue=_queue(task, queue, kept),
    )
    return message, expires


def _encoded(kept: _Kept) -> tuple[Any, Any, Any]:
    no_serializer = f"serializer={safe_repr(kept.serializer)}: no such serializer is installed."
    if not isinstance(kept.serializer, str | None):
        raise UsageError(no_serializer)
    try:
        content_type, encoding, body = dumps(kept.body, serializer=kept.serializer)
    except SerializerNotInstalled as error:
        raise UsageError(no_serializer) from error
    if kept.compression:
        try:
            body, kept.headers["compression"] = compression.compress(body, kept.compression)
        except (KeyError, TypeError) as error:
            raise UsageError(f"compression={safe_repr(kept.compression)}: no such compression is installed.") from error
    return content_type, encoding, body


def _queue(task: "JobTask", queue: Any, kept: _Kept) -> str:
    """The relay sends to the default exchange, where the routing key is the name of a queue."""
    if isinstance(queue, Broadcast):
        raise UsageError(f"{task.name} is routed to a broadcast, but a job runs once. Route it to a plain queue.")
    if queue is not None:
        return str(getattr(queue, "name", queue))
    if not kept.exchange and kept.routing_key:
        return str(kept.routing_key)
    raise UsageError(
        f"{task.name} is routed to the exchange {kept.exchange!r} and no queue is named. The relay sends to queues, so "
        "that nobody else gets a copy: name a queue in task_routes."
    )


def _family(app: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """Root and parent, as Celery gives them to what is sent inside of a task."""
    current = app.current_worker_task
    if not current:
        return None, None
    request = current.request
    if app.conf.task_inherit_parent_priority:
        options.setdefault("priority", (request.delivery_info or {}).get("priority"))
    return request.root_id or request.id, request.id


def _several(value: Any) -> Any:
    return value if value is None or (isinstance(value, list | tuple) and not isinstance(value, dict)) else [value]
