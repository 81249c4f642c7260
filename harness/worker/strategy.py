"""In the parent: what happens to a job's message between the broker and the pool.

Celery's own strategy keeps ETA messages unacknowledged for as long as they wait and drops what has expired. Here both
go on to the child, which decides behind the fence.
"""

import logging
from collections.abc import Callable
from typing import Any

from celery import signals
from celery.app import trace as celery_trace
from celery.exceptions import InvalidTaskError
from celery.worker.state import task_reserved
from celery.worker.strategy import hybrid_to_proto2, proto1_to_proto2
from kombu.utils.imports import symbol_by_name

from harness.worker.monitor import GOES_ON
from harness.worker.wire import REPLAY, moment

log = logging.getLogger("celery.worker.strategy")


def job_strategy(task: Any, app: Any, consumer: Any) -> Callable[..., None]:
    """Celery's `Task.Strategy` of a job."""
    make_request = symbol_by_name(task.Request)
    eventer = consumer.event_dispatcher
    sends_events = bool(eventer and eventer.enabled and task.send_events)

    def on_message(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
        body, headers, decoded, utc = _protocol_2(message, body, app)
        check_envelope(headers)
        request = make_request(
            message,
            consumer=consumer,
            on_ack=ack,
            on_reject=reject,
            app=app,
            hostname=consumer.hostname,
            eventer=eventer,
            task=task,
            connection_errors=consumer.connection_errors,
            body=body,
            headers=headers,
            decoded=decoded,
            utc=utc,
        )
        if log.isEnabledFor(logging.INFO):
            context = {"id": request.id, "name": request.name, "args": "", "kwargs": "", "eta": None}
            log.info(celery_trace.LOG_RECEIVED, context, extra={"data": context})
        signals.task_received.send(sender=consumer, request=request)
        if sends_events:
            _send_received(eventer, request)
        bucket = None if consumer.disable_rate_limits else consumer.task_buckets[task.name]
        if bucket:
            consumer._limit_task(request, bucket, 1)
            return
        task_reserved(request)
        for callback in callbacks or ():
            callback(request)
        consumer.on_task_request(request)

    return on_message


def _protocol_2(message: Any, body: Any, app: Any) -> tuple[Any, Any, bool, bool]:
    payload = message.payload
    if body is None and not (isinstance(payload, dict) and "args" in payload):
        return message.body, message.headers, False, app.uses_utc_timezone()
    converted = hybrid_to_proto2(message, payload) if body is None else proto1_to_proto2(message, body)
    return tuple(converted)


def check_envelope(headers: Any) -> None:
    """Raise InvalidTaskError for headers that Celery's request class, or the pool, would fall over."""
    if not isinstance(headers.get("task"), str):
        raise InvalidTaskError(f"the header 'task' is no text: {headers.get('task')!r}")
    if not isinstance(headers.get("id"), str) or not headers["id"]:
        raise InvalidTaskError(f"the header 'id' is no text: {headers.get('id')!r}")
    limit = headers.get("timelimit")
    if limit is not None and not (
        isinstance(limit, (list, tuple))
        and len(limit) == 2
        and all(part is None or (isinstance(part, (int, float)) and part >= 0) for part in limit)
    ):
        raise InvalidTaskError(f"the header 'timelimit' is no pair of numbers: {limit!r}")
    for name in ("eta", "expires"):
        if headers.get(name) is not None and moment(headers[name]) is None:
            # To run it at once, or after all, could be as wrong as not to run it: an operator decides.
            raise InvalidTaskError(f"the header {name!r} is no time: {headers[name]!r}")
    for name, kind in (("stamped_headers", (list, tuple)), ("stamps", dict)):
        if headers.get(name) is not None and not isinstance(headers[name], kind):
            raise InvalidTaskError(f"the header {name!r} is of the wrong type: {headers[name]!r}")


def _send_received(eventer: Any, request: Any) -> None:
    if REPLAY in request.request_dict:
        eventer.send(GOES_ON.type, uuid=request.id)
    eventer.send(
        "task-received",
        uuid=request.id,
        name=request.name,
        args=request.argsrepr,
        kwargs=request.kwargsrepr,
        root_id=request.root_id,
        parent_id=request.parent_id,
        retries=request.request_dict.get("retries", 0),
        eta=None,
        expires=None,
    )
