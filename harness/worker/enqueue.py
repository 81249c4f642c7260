"""`harness.enqueue` and `enqueue_many`: rows of the inbox in the caller's transaction, whatever connection it is on."""

import inspect
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn

from celery.canvas import Signature

from harness.core.errors import UsageError
from harness.core.message import Message, digest
from harness.enqueue import Enqueued, put
from harness.enqueue.put import Steps
from harness.store.enqueueing import Entry, Statement
from harness.worker.decode import arguments_of
from harness.worker.enqueueing import Options, entry, entry_of, not_a_job

if TYPE_CHECKING:
    from harness.worker.harness import Harness

OPTIONS = tuple(field.name for field in fields(Options) if field.name != "passed")


def enqueue(
    harness: "Harness", session: Any, job: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Enqueued | Awaitable[Enqueued]:
    """See `Harness.enqueue`."""
    options = {name: value for name, value in kwargs.items() if name in OPTIONS}
    rest = {name: value for name, value in kwargs.items() if name not in options}
    if isinstance(job, Signature):
        if args or rest:
            raise UsageError(
                "Arguments were given to a signature, which has its own: harness.enqueue(session, job.s(…), job_id=…)."
            )
        made = entry_of(harness.app, job, Options(**options))
    else:
        made = _direct(harness, job, args, rest, options)
    steps = _steps(harness, [made])
    if _is_async(session):
        return _first(_run_async(session, steps))
    return _run(session, steps)[0]


def enqueue_many(
    harness: "Harness", session: Any, calls: Iterable[Signature]
) -> list[Enqueued] | Awaitable[list[Enqueued]]:
    """See `Harness.enqueue_many`."""
    entries = []
    for call in calls:
        if not isinstance(call, Signature):
            raise UsageError(f"{call!r} is no signature. Write harness.enqueue_many(session, [job.s(…), …]).")
        entries.append(entry_of(harness.app, call, Options()))
    steps = _steps(harness, entries)
    return _run_async(session, steps) if _is_async(session) else _run(session, steps)


def _direct(harness: "Harness", job: Any, args: Any, kwargs: dict[str, Any], options: dict[str, Any]) -> Entry:
    from harness.worker.task import JobTask

    task = job._get_current_object() if hasattr(job, "_get_current_object") else job  # a shared task is a proxy
    if not (isinstance(task, JobTask) and task.is_job) or task.app is not harness.app:
        raise not_a_job(getattr(task, "name", task))
    both = [name for name in options if name in task.spec.signature.sent.parameters]
    if both:
        raise UsageError(
            f"{both[0]}= is an option of an enqueue and a parameter of {task.name}. Say which is which: "
            f"harness.enqueue(session, {task.__name__}.s(…), {both[0]}=…)."
        )
    return entry(task, args, kwargs, Options(**options))


def _steps(harness: "Harness", entries: list[Entry]) -> Steps:
    def read(message: Message) -> bytes:
        return digest(*arguments_of(harness.app, message))

    return put(harness.store.enqueueing, harness.settings.service, entries, read)


def _is_async(session: Any) -> bool:
    execute = getattr(session, "execute", None)
    if execute is None:
        _refuse(session)
    return inspect.iscoroutinefunction(execute)


def _run(session: Any, steps: Steps) -> list[Enqueued]:
    rows: Any = None
    while True:
        try:
            wanted: Statement = steps.send(rows)
        except StopIteration as end:
            return list(end.value)
        rows = session.execute(wanted.sql, wanted.values).all()


async def _run_async(session: Any, steps: Steps) -> list[Enqueued]:
    rows: Any = None
    while True:
        try:
            wanted: Statement = steps.send(rows)
        except StopIteration as end:
            return list(end.value)
        rows = (await session.execute(wanted.sql, wanted.values)).all()


async def _first(answers: Awaitable[list[Enqueued]]) -> Enqueued:
    return (await answers)[0]


def _refuse(session: Any) -> NoReturn:
    raise UsageError(
        f"{session!r} cannot execute SQL. Pass the Session, Connection, AsyncSession or AsyncConnection of your "
        "transaction."
    )
