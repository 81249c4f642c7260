"""In the pool's child: a message becomes a delivery; its outcome becomes Celery's state and the reply to the parent.

The parent acknowledges on the reply alone. So nothing that Celery does around the handler (result backend, signals,
hooks) can make or unmake an outcome: it is committed before they see it, and kept here whatever they raise.
"""

import contextlib
import logging
import time
from dataclasses import replace
from typing import Any

from celery import current_app
from celery.app.task import Context

from harness.core.classify import classify
from harness.core.errors import Unrecorded
from harness.core.failure import Failure, Kind
from harness.core.message import digest
from harness.core.payload import wrong_shape
from harness.core.policy import Policy
from harness.worker.asked import asks_result, check_steps, goes_on
from harness.worker.burying import blocks, bury, record_only
from harness.worker.decode import payload_of
from harness.worker.delivery import Delivery
from harness.worker.ending import pool_is_ending
from harness.worker.reply import Reply, reply_of
from harness.worker.wire import Wire, copy_of

__all__ = ["Reply", "record_message", "trace_job"]

log = logging.getLogger("harness")


def trace_job(name: str, uuid: str, request: dict[str, Any], wire: Wire, decoded: Any) -> tuple[int, Reply, float]:
    """What the parent submits to the pool for a job: `(0, Reply, seconds)`. Raises only when the pool ends us."""
    from harness.worker.harness import Harness

    started = time.monotonic()
    app = current_app._get_current_object()
    task, harness = app.tasks[name], Harness.of(app)
    service, consumer = harness.settings.service, task.spec.consumer
    try:
        args, kwargs, embed = decoded or payload_of(wire.message, harness.accepts)
        if (problem := wrong_shape(args, kwargs, ())) is not None:
            copy = copy_of(wire, service, consumer)
            return 0, bury(harness, task, copy, classify(problem), Policy(), wire), 0.0
        args, kwargs, embed = list(args), dict(kwargs), dict(embed or {})
        comes_after = goes_on(embed)
        if comes_after or embed.get("errbacks"):
            check_steps(embed)
    except Exception as error:
        undecodable = Failure(Kind.undecodable, type(error).__name__, str(error))
        return 0, bury(harness, task, copy_of(wire, service, consumer), undecodable, Policy(), wire), 0.0
    copy = copy_of(wire, service, consumer, digest(args, kwargs))
    if comes_after:
        copy = replace(copy, goes_on=True)
    delivery = Delivery(harness, task, copy, asks_result(task, request, embed))
    token = Delivery._current.set(delivery)
    try:
        request.update({"args": args, "kwargs": kwargs, "hostname": wire.worker, "is_eager": False}, **embed)
        _through_celery(task, uuid, args, kwargs, request)
        if delivery.outcome is None and delivery.unrecorded is None:
            # Celery did not come as far as the handler: a signal or the result backend was in the way.
            with contextlib.suppress(Unrecorded):
                delivery.decide(args, kwargs)
        if not delivery.followed:
            delivery.follow(Context(request))
        return 0, _reply(delivery, time.monotonic() - started), time.monotonic() - started
    finally:
        Delivery._current.reset(token)


def record_message(wire: Wire, failure: Failure, name: str | None, follow: bool = True) -> tuple[int, Reply, float]:
    """What the parent submits for a message whose child died, or that no child can run.

    Without `follow` nothing is sent after it: the parent has seen that its body can't even be looked at.
    """
    from harness.worker.harness import Harness

    app = current_app._get_current_object()
    harness = Harness.of(app)
    task = app.tasks.get(name) if name else None
    spec = task.spec if task is not None and getattr(task, "is_job", False) else None
    copy = copy_of(wire, harness.settings.service, spec.consumer if spec else None)
    policy = spec.policy_for(wire.message.queue) if spec else Policy()
    if not follow:
        return 0, record_only(harness, copy, failure, policy, blocks(task))[0], 0.0
    return 0, bury(harness, task, copy, failure, policy, wire), 0.0


def _through_celery(task: Any, uuid: str, args: Any, kwargs: Any, request: dict[str, Any]) -> None:
    try:
        task.__trace__(uuid, args, kwargs, request)
    except BaseException as error:
        if pool_is_ending(error):
            raise
        log.warning("Celery raised %s around job %s; its outcome stands", type(error).__name__, uuid)


def _reply(delivery: Delivery, seconds: float) -> Reply:
    if delivery.outcome is None or delivery.unrecorded is not None:
        return Reply("unrecorded", str(delivery.unrecorded))
    return reply_of(delivery.outcome, delivery.error, seconds)
