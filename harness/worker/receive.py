"""`harness.receive` and `harness.source`: messages of others become jobs of the inbox."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

from kombu import Exchange, Queue

from harness.core.errors import UsageError
from harness.core.incoming import Incoming
from harness.core.message import Message, digest, job_key
from harness.receive import Received, take
from harness.receive.take import Steps
from harness.store.enqueueing import Entry
from harness.worker.decode import arguments_of
from harness.worker.enqueue import is_async, run_async, run_steps
from harness.worker.enqueueing import Options, entry, not_a_job
from harness.worker.source import Reader, Source, make
from harness.worker.wire import CORRELATION, SENT_AT, SOURCE

if TYPE_CHECKING:
    from harness.worker.harness import Harness
    from harness.worker.task import JobTask
    from harness.worker.typed import Async, Sync, TypedJob


class Receives:
    """What `Harness` can do with messages that are not its own."""

    @overload
    def receive(self, session: "Sync", job: "TypedJob[Any] | JobTask", message: Incoming, /) -> Received: ...
    @overload
    def receive(
        self, session: "Async", job: "TypedJob[Any] | JobTask", message: Incoming, /
    ) -> Awaitable[Received]: ...

    def receive(self, session: Any, job: Any, message: Incoming, /) -> Any:
        """Take a message in, in the caller's transaction: once for its id, however often it comes.

            harness.receive(session, book, Incoming(id=delivery_id, arguments={"payload": payload}))

        `session`: as for `enqueue`. The arguments are not compared with the handler here, for taking in may fail only
        technically: what does not fit becomes a dead letter when the job runs. The same id with other arguments becomes
        a dead letter at once (`conflict`), in the same transaction.

        Returns a `Received`. Raises UsageError for what is no message, or can't be written as one.
        """
        harness = cast("Harness", self)
        task = job_of(harness, job)
        if not isinstance(message, Incoming):
            raise UsageError(
                f"{message!r} is no message. Write harness.receive(session, job, Incoming(id=…, arguments=…))."
            )
        steps = steps_of(harness, [entry_of(task, message)])
        if is_async(session):
            return _first(run_async(harness, session, steps))
        return run_steps(harness, session, steps)[0]

    def source(
        self,
        name: str,
        *,
        job: "TypedJob[Any] | JobTask",
        queue: str | Queue,
        exchange: str | Exchange | None = None,
        exchange_type: str = "topic",
        routing_keys: Sequence[str] = (),
        read: Reader | None = None,
        declare: bool = True,
        queue_arguments: Mapping[str, Any] | None = None,
    ) -> Source:
        """Declare a queue from which messages of others are taken in, each as one `job`.

            harness.source("github", job=book, queue="webhooks", read=Fields(id="headers.X-GitHub-Delivery", …))

        A receiver reads it: beside each worker, or `celery -A yourapp harness receive`. `read`: `Fields(…)` (the
        default: the body is an object with the arguments, the id is the property `message_id`), `CloudEvents(…)`, or a
        function of a `Delivered` that returns an `Incoming`. With `exchange` the queue is bound to it, by
        `routing_keys`. `declare=False` for a queue that the receiver may not make: it must be there then.
        `queue_arguments`: for instance `{"x-queue-type": "quorum"}`.

        Raises UsageError, here and at once, for what can't be: a name or a queue that another source has, arguments
        that the handler does not know.
        """
        harness = cast("Harness", self)
        task = job_of(harness, job)
        made = make(
            harness.sources, name, task, queue, exchange, exchange_type, routing_keys, read, declare, queue_arguments
        )
        harness.sources[name] = made
        return made


def job_of(harness: "Harness", job: Any) -> "JobTask":
    """The job behind what a caller passes. UsageError where it is none of this app."""
    from harness.worker.task import JobTask

    task = job._get_current_object() if hasattr(job, "_get_current_object") else job  # a shared task is a proxy
    if not (isinstance(task, JobTask) and task.is_job) or task.app is not harness.app:
        raise not_a_job(getattr(task, "name", task))
    return task


def entry_of(task: "JobTask", message: Incoming, source: str | None = None) -> Entry:
    """The row of a message. UsageError for what can't be one; whatever the serialiser raises for its arguments."""
    if not isinstance(message.id, str) or not message.id:
        raise UsageError(f"Incoming(id={message.id!r}): it must be a text, which is the same each time that it comes.")
    headers = dict(message.headers)
    if message.correlation_id is not None:
        headers[CORRELATION] = message.correlation_id
    if message.sent_at is not None:
        headers[SENT_AT] = message.sent_at.isoformat(timespec="milliseconds")
    if source is not None:
        headers[SOURCE] = source
    options = Options(
        job_id=job_key(message.id, b""),
        ordering_key=message.ordering_key,
        tenant=message.tenant,
        priority=message.priority,
        passed={"headers": headers},
    )
    return entry(task, (), dict(message.arguments), options, validate=False)


def steps_of(harness: "Harness", entries: Sequence[Entry]) -> Steps:
    """The steps that take these messages in."""

    def read(message: Message) -> bytes:
        return digest(*arguments_of(harness.app, message))

    store = harness.store

    def same(one: Entry, known: bytes) -> bool:
        return store.forms.say(one.arrival.task, one.arrival.message, known)

    def name(one: Entry) -> bytes:
        return store.forms.name(one.arrival.task, one.arrival.message) or one.arrival.digest or b""

    return take(store.enqueueing, store.conflicts, harness.settings.service, entries, read, same, name)


async def _first(answers: Awaitable[list[Received]]) -> Received:
    return (await answers)[0]
