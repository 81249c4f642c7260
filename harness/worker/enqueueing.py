"""From a job and its arguments, or from a signature, to the row of the inbox."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from celery.canvas import Signature, maybe_signature

from harness.core.errors import UsageError
from harness.core.message import digest
from harness.store.enqueueing import Entry
from harness.store.inbox import Arrival
from harness.worker.decode import arguments_of
from harness.worker.enqueue_options import Options, job_id_of, priority_of, when_of
from harness.worker.sendable import message_of
from harness.worker.wire import CORRELATION, ORDERING_KEY, TENANT

if TYPE_CHECKING:
    from harness.worker.task import JobTask

__all__ = ["Options", "entry", "entry_of", "not_a_job"]

#: What a signature may say of one job, and what an enqueue calls it.
_OF_SIGNATURE = {"task_id": "job_id", "countdown": "delay"}
_MEANT = ("job_id", "ordering_key", "delay", "eta", "priority", "expires", "tenant")
_PASSED = ("queue", "headers", "link", "link_error", "serializer", "compression", "shadow")


def entry(
    task: "JobTask", args: Sequence[Any], kwargs: Mapping[str, Any], options: Options, *, validate: bool = True
) -> Entry:
    """The row. InvalidPayload for arguments that the handler would not take, UsageError for options that can't be."""
    if validate:
        task.spec.signature.validate(args, kwargs)
    job_id = job_id_of(options.job_id)
    delay, eta = when_of(options)
    priority = priority_of(options.priority)
    message, expires = message_of(task, job_id, args, kwargs, options, priority)
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
