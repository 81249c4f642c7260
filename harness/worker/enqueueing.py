"""From a job and its arguments to the row of the inbox: the message that `.delay()` would have sent.

Celery's own code makes the message, with its routes, serialiser and signals; where it would publish, it is kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any

from celery.canvas import Signature, maybe_signature
from kombu import compression
from kombu.common import Broadcast
from kombu.serialization import dumps

from harness.core.errors import UsageError
from harness.core.ids import uuid7
from harness.core.message import Message, digest, job_key
from harness.core.text import bounded
from harness.store.enqueueing import Entry
from harness.store.inbox import Arrival
from harness.worker.decode import arguments_of
from harness.worker.wire import CORRELATION, ORDERING_KEY, TENANT

if TYPE_CHECKING:
    from harness.worker.task import JobTask

#: What a signature may say of one job, and what an enqueue calls it.
_OF_SIGNATURE = {"task_id": "job_id", "countdown": "delay"}
_MEANT = ("job_id", "ordering_key", "delay", "eta", "priority", "expires", "tenant")
_PASSED = ("queue", "headers", "link", "link_error", "serializer", "compression", "shadow")
#: What Celery's sender adds that does not say what the message is.
_OF_A_PUBLISH = ("expiration", "mandatory", "immediate", "retry", "retry_policy", "timeout", "confirm_timeout")
_LONGEST_NAME = 1000


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one enqueue. Times: seconds, timedelta or an aware datetime, as each says."""

    job_id: str | None = None
    ordering_key: str | None = None
    delay: float | timedelta | None = None
    eta: datetime | None = None
    priority: int | None = None
    expires: float | timedelta | datetime | None = None
    tenant: str | None = None
    passed: Mapping[str, Any] = field(default_factory=dict)


def entry(
    task: "JobTask", args: Sequence[Any], kwargs: Mapping[str, Any], options: Options, *, validate: bool = True
) -> Entry:
    """The row. InvalidPayload for arguments that the handler would not take, UsageError for options that can't be."""
    if validate:
        task.spec.signature.validate(args, kwargs)
    job_id = _job_id(options.job_id)
    delay, eta = _when(options)
    priority = _priority(options.priority)
    message, expires = _message(task, job_id, args, kwargs, options, priority)
    said = message.properties.get("priority")
    headers = message.headers
    arrival = Arrival(
        service=task.spec.service,
        consumer=task.spec.consumer,
        task=task.name,
        job_id=job_id,
        message=message,
        digest=digest(*arguments_of(task.app, message)),
        ordering_key=headers.get(ORDERING_KEY),
        tenant=headers.get(TENANT),
        priority=said if type(said) is int else 0,
        correlation_id=headers.get(CORRELATION) or job_id,
    )
    return Entry(arrival, delay, eta, expires)


def entry_of(app: Any, call: Signature, options: Options) -> Entry:
    """The row of `job.s(…)`; what the signature says of the job counts where `options` do not."""
    from harness.worker.task import JobTask

    call = maybe_signature(call, app=app)
    if type(call) is not Signature:
        raise UsageError(
            f"{type(call).__name__} cannot be enqueued: a row of the inbox is one job. Enqueue the first job and have "
            "its handler enqueue the next ones in its own transaction."
        )
    task = app.tasks.get(call.task)
    if not (isinstance(task, JobTask) and task.is_job):
        raise not_a_job(call.task)
    given = {_OF_SIGNATURE.get(name, name): value for name, value in call.options.items() if value is not None}
    unknown = sorted(given.keys() - {*_MEANT, *_PASSED})
    if unknown:
        raise UsageError(
            f"An enqueued job cannot have the option {unknown[0]!r}. Known: {', '.join(_MEANT + _PASSED)}."
        )
    said = Options(
        **{name: given[name] for name in _MEANT if name in given},
        passed={name: given[name] for name in _PASSED if name in given},
    )
    changed = {name: value for name in _MEANT if (value := getattr(options, name)) is not None}
    if "delay" in changed or "eta" in changed:
        changed = {"delay": None, "eta": None} | changed
    return entry(task, call.args or (), call.kwargs or {}, replace(said, **changed))


def not_a_job(name: object) -> UsageError:
    return UsageError(
        f"{name!r} is no job of this app, so it has no fence to take it from the inbox with. Make it one with "
        "@harness.job, or send it with .delay()."
    )


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


def _message(
    task: "JobTask",
    job_id: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Options,
    priority: int | None,
) -> tuple[Message, datetime | None]:
    app = task.app
    passed: dict[str, Any] = dict(task._get_exec_options()) | dict(options.passed)
    if task._dump_pydantic_arguments is not None and passed.get("serializer") != "pickle":
        args, kwargs = task._dump_pydantic_arguments(args, kwargs)
    limits = passed.pop("time_limit", None), passed.pop("soft_time_limit", None)
    expires = _expires(options.expires, passed.pop("expires", None))
    headers = task.job_headers(passed.pop("headers", None))
    headers |= {name: value for name, value in _labels(options) if value is not None}
    shadow = passed.pop("shadow", None) or task.shadow_name(args, kwargs, passed)
    links = [_several(passed.pop(name, None)) for name in ("link", "link_error")]
    if priority is not None:
        passed["priority"] = priority
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
    content_type, encoding, body = dumps(kept.body, serializer=kept.serializer)
    if kept.compression:
        body, kept.headers["compression"] = compression.compress(body, kept.compression)
    message = Message(
        body=body.encode("utf-8") if isinstance(body, str) else bytes(body),
        content_type=content_type,
        content_encoding=encoding,
        headers=kept.headers,
        properties={k: v for k, v in kept.properties.items() if k not in _OF_A_PUBLISH and v is not None},
        queue=_queue(task, queue, kept),
    )
    return message, expires


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


def _labels(options: Options) -> Iterable[tuple[str, str | None]]:
    for header, name in ((TENANT, "tenant"), (ORDERING_KEY, "ordering_key")):
        value = getattr(options, name)
        if value is not None and not (
            isinstance(value, str) and value and value == bounded(value, _LONGEST_NAME) and value.isprintable()
        ):
            raise UsageError(f"{name}={value!r}: it must be a printable text of 1 to {_LONGEST_NAME} bytes.")
        yield header, value


def _job_id(wanted: object) -> str:
    if wanted is None:
        return uuid7()
    if not isinstance(wanted, str) or job_key(wanted, b"") != wanted:
        raise UsageError(f"job_id={wanted!r}: it must be a printable text of 1 to 255 characters.")
    return wanted


def _priority(wanted: object) -> int | None:
    if wanted is not None and not (type(wanted) is int and 0 <= wanted <= 255):
        raise UsageError(f"priority={wanted!r}: it must be a whole number from 0 to 255, as the broker takes it.")
    return wanted


def _when(options: Options) -> tuple[float, datetime | None]:
    if options.delay is not None and options.eta is not None:
        raise UsageError("delay= and eta= were both given. Give one: seconds from now, or a time.")
    if options.eta is not None:
        return 0.0, _aware("eta", options.eta)
    return (0.0, None) if options.delay is None else (_seconds("delay", options.delay), None)


def _expires(wanted: Any, default: Any) -> datetime | None:
    """As Celery counts: seconds from now, or a time. The database's clock says later whether it has passed."""
    wanted = default if wanted is None else wanted
    if wanted is None:
        return None
    if isinstance(wanted, datetime):
        return _aware("expires", wanted)
    return datetime.now(UTC) + timedelta(seconds=_seconds("expires", wanted))


def _seconds(name: str, value: object) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not isfinite(seconds) or seconds < 0:
        raise UsageError(f"{name}={value!r}: it must be a number of seconds, 0 or more, or such a timedelta.")
    if seconds > _LONGEST:
        raise UsageError(f"{name}={value!r}: no job waits for more than a hundred years.")
    return float(seconds)


_LONGEST = 100 * 366 * 86_400.0


def _aware(name: str, value: object) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise UsageError(f"{name}={value!r}: it must be a datetime with a time zone, for clocks in two places differ.")
    return value


def _several(value: Any) -> Any:
    return value if value is None or (isinstance(value, list | tuple) and not isinstance(value, dict)) else [value]
