"""`harness.enqueue` and `enqueue_many`: rows of the inbox in the caller's transaction, whatever connection it is on."""

from collections.abc import Awaitable, Iterable
from dataclasses import fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

from celery.canvas import Signature

from harness.core.errors import UsageError
from harness.core.message import Message, digest
from harness.enqueue import Enqueued, put
from harness.enqueue.put import Steps
from harness.store.enqueueing import Entry
from harness.worker.decode import arguments_of
from harness.worker.enqueue_slips import refuse_arguments, refuse_name, refuse_slips
from harness.worker.enqueueing import Options, entry, entry_of, not_a_job
from harness.worker.on_connection import first, is_async, run_async, run_steps
from harness.worker.typed import Both, Call, Late, Later, P, Plain, TypedJob, WithJob, WithSession

if TYPE_CHECKING:
    from harness.worker.harness import Harness
    from harness.worker.task import JobTask
    from harness.worker.typed import Async, Sync

Seconds: TypeAlias = float | timedelta

__all__ = ["Enqueues", "is_async", "run_async", "run_steps"]

OPTIONS = tuple(field.name for field in fields(Options) if field.name != "passed")


class Enqueues:
    """What `Harness` can do with the inbox of its jobs."""

    # Options beside typed arguments have no place in Python's types: they are typed with a signature, `job.s(…)`.
    # Beside `job_id=` the arguments are checked at run time only.
    @overload
    def enqueue(
        self,
        session: "Sync",
        job: Call,
        /,
        *,
        job_id: str | None = None,
        delay: Seconds | None = None,
        eta: datetime | None = None,
        expires: Seconds | datetime | None = None,
        priority: int | None = None,
        tenant: str | None = None,
        ordering_key: str | None = None,
    ) -> Enqueued: ...
    @overload
    def enqueue(
        self,
        session: "Async",
        job: Call,
        /,
        *,
        job_id: str | None = None,
        delay: Seconds | None = None,
        eta: datetime | None = None,
        expires: Seconds | datetime | None = None,
        priority: int | None = None,
        tenant: str | None = None,
        ordering_key: str | None = None,
    ) -> Awaitable[Enqueued]: ...
    @overload
    def enqueue(self, session: "Sync", job: "TypedJob[Both[P]]", /, *args: P.args, **kwargs: P.kwargs) -> Enqueued: ...
    @overload
    def enqueue(
        self, session: "Sync", job: "TypedJob[WithSession[P]]", /, *args: P.args, **kwargs: P.kwargs
    ) -> Enqueued: ...
    @overload
    def enqueue(
        self, session: "Sync", job: "TypedJob[WithJob[P]]", /, *args: P.args, **kwargs: P.kwargs
    ) -> Enqueued: ...
    @overload
    def enqueue(self, session: "Sync", job: "TypedJob[Plain[P]]", /, *args: P.args, **kwargs: P.kwargs) -> Enqueued: ...
    @overload
    def enqueue(
        self, session: "Async", job: "TypedJob[Both[P]]", /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[Enqueued]: ...
    @overload
    def enqueue(
        self, session: "Async", job: "TypedJob[WithSession[P]]", /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[Enqueued]: ...
    @overload
    def enqueue(
        self, session: "Async", job: "TypedJob[WithJob[P]]", /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[Enqueued]: ...
    @overload
    def enqueue(
        self, session: "Async", job: "TypedJob[Plain[P]]", /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[Enqueued]: ...
    @overload
    def enqueue(
        self, session: "Sync", job: "TypedJob[Late[...]] | TypedJob[Later[...]]", /, *args: Any, **kwargs: Any
    ) -> Enqueued: ...
    @overload
    def enqueue(
        self, session: "Sync", job: "TypedJob[Any] | JobTask", /, *args: Any, job_id: str, **kwargs: Any
    ) -> Enqueued: ...
    @overload
    def enqueue(
        self, session: "Async", job: "TypedJob[Late[...]] | TypedJob[Later[...]]", /, *args: Any, **kwargs: Any
    ) -> Awaitable[Enqueued]: ...
    @overload
    def enqueue(
        self, session: "Async", job: "TypedJob[Any] | JobTask", /, *args: Any, job_id: str, **kwargs: Any
    ) -> Awaitable[Enqueued]: ...

    def enqueue(self, session: Any, job: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Put a job into the inbox in the caller's transaction: sent after its commit, and only then.

            harness.enqueue(session, credit_points.s(account_id=7, points=50), job_id="order-4711")
            harness.enqueue(session, credit_points, account_id=7, points=50)

        `session`: a SQLAlchemy Session, scoped_session or Connection; of AsyncSession and AsyncConnection the call is
        awaited. Options, also beside arguments: `job_id`, `delay` (seconds or timedelta) or `eta` (an aware datetime),
        `priority` (0 to 255, as the broker reads it), `expires` (seconds, timedelta or an aware datetime), `tenant`,
        `ordering_key` (the jobs of the service with one key run one after another, in the order of the commits).

        Returns an `Enqueued`. Raises InvalidPayload for arguments that the handler would not take, ConflictingJob for a
        `job_id` that is known with other arguments, UsageError for anything else that cannot be; then nothing is
        written.
        """
        harness = cast("Harness", self)
        options = {name: value for name, value in kwargs.items() if name in OPTIONS}
        rest = {name: value for name, value in kwargs.items() if name not in options}
        if isinstance(job, Signature):
            refuse_arguments(args, rest, OPTIONS)
            made = entry_of(harness.app, job, Options(**options))
        else:
            made = _direct(harness, job, args, rest, options)
        steps = _steps(harness, [made])
        if is_async(session):
            return first(run_async(harness, session, steps))
        return run_steps(harness, session, steps)[0]

    @overload
    def enqueue_many(self, session: "Sync", calls: Iterable[Call], /) -> list[Enqueued]: ...
    @overload
    def enqueue_many(self, session: "Async", calls: Iterable[Call], /) -> Awaitable[list[Enqueued]]: ...

    def enqueue_many(self, session: Any, calls: Iterable[Call], /) -> Any:
        """Put many jobs, `[credit_points.s(…), …]`, into the inbox with one statement; returns an `Enqueued` for each.

        Options of a single job are its signature's: `credit_points.s(…).set(task_id=…, priority=…)`. Otherwise as
        `enqueue`, and nothing is written where one of them is refused; after a ConflictingJob roll back, for others
        may have been written.
        """
        harness = cast("Harness", self)
        entries = []
        for call in calls:
            if not isinstance(call, Signature):
                raise UsageError(f"{call!r} is no signature. Write harness.enqueue_many(session, [job.s(…), …]).")
            entries.append(entry_of(harness.app, call, Options()))
        steps = _steps(harness, entries)
        return run_async(harness, session, steps) if is_async(session) else run_steps(harness, session, steps)


def _direct(harness: "Harness", job: Any, args: Any, kwargs: dict[str, Any], options: dict[str, Any]) -> Entry:
    from harness.worker.task import JobTask

    task = job._get_current_object() if hasattr(job, "_get_current_object") else job  # a shared task is a proxy
    if isinstance(task, str):
        refuse_name(harness.app, task)
    if not (isinstance(task, JobTask) and task.is_job) or task.app is not harness.app:
        raise not_a_job(getattr(task, "name", task))
    refuse_slips(task.name, task.spec.signature.sent, kwargs, OPTIONS)
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

    def same(one: Entry, known: bytes) -> bool:
        return harness.store.forms.say(one.arrival.task, one.arrival.message, known)

    return put(harness.store.enqueueing, harness.settings.service, entries, read, same)
