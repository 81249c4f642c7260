"""From a step that could not be sent to its dead letter: the message, as far as it could be made."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from celery.utils.saferepr import saferepr
from kombu import compression
from kombu.serialization import dumps

from harness.core.alike import same_content
from harness.core.classify import classify
from harness.core.failure import Failure, Kind
from harness.core.message import Message, job_key
from harness.core.message import digest as digest_of
from harness.core.text import bounded
from harness.process.copy import Copy
from harness.process.spec import JobSpec
from harness.process.unsent import Step, bury, reason_of
from harness.store import codec
from harness.store.outside import consumer_of
from harness.store.processed_jobs import Key
from harness.worker import announce
from harness.worker.decode import arguments_of
from harness.worker.holding import Incomplete, hold, said, unwrapped
from harness.worker.wire import CORRELATION, NO_TASK, ORDERING_KEY, TENANT

if TYPE_CHECKING:
    from harness.worker.harness import Harness

_PROPERTIES = ("correlation_id", "reply_to", "priority", "message_id", "type", "app_id")
_NO_BYTES = "no message could be made of it, so that there is nothing to replay; its arguments are in the payload"


class Unsent:
    """Writes the letters of the steps behind one job. `place` says which step: "link 0", "chain"."""

    def __init__(self, harness: "Harness", copy: Copy, seconds: float, place: str) -> None:
        self.harness, self.copy, self.seconds, self.place = harness, copy, seconds, place

    def of_publish(self, body: Any, options: Mapping[str, Any], error: Exception) -> None:
        """A message that Celery has made, and that can't be encoded or is refused by the broker. Raises Unpublished."""
        headers = dict(options.get("headers") or {})
        properties = {key: options[key] for key in _PROPERTIES if options.get(key) is not None}
        args, kwargs = (body[0], body[1]) if isinstance(body, (tuple, list)) and len(body) > 1 else ((), {})
        message = self._message(body, options, headers, properties, self._queue(headers, options))
        exchange = options.get("exchange")
        route = {"exchange": str(getattr(exchange, "name", exchange) or ""), "routing_key": options.get("routing_key")}
        self._bury(message, {"args": args, "kwargs": kwargs, "step": self.place, **route}, error)

    def of_signature(self, signature: Mapping[str, Any], args: Sequence[Any], error: Exception) -> None:
        """A step of which Celery could not make a message. Raises Unpublished."""
        options = signature.get("options") or {}
        own = self.copy.arrival
        headers = {
            "id": options.get("task_id"),
            "task": signature.get("task"),
            "lang": "py",
            "parent_id": own.job_id,
            CORRELATION: own.correlation_id or own.job_id,
        }
        body = (
            [*(() if signature.get("immutable") else args), *(signature.get("args") or ())],
            dict(signature.get("kwargs") or {}),
            {"callbacks": options.get("link"), "errbacks": options.get("link_error"), "chain": options.get("chain")}
            | {"chord": options.get("chord")},
        )
        queue = options.get("queue")
        queue = str(getattr(queue, "name", queue) or self.harness.app.conf.task_default_queue)
        # A group is no message, but several.
        alone = signature.get("subtask_type") is None and not isinstance(error, Incomplete)
        message = self._message(body if alone else None, options, headers, {}, queue)
        self._bury(message, {"args": body[0], "kwargs": body[1], "step": self.place, "options": options}, error)

    def has_letter(self, signature: Mapping[str, Any]) -> bool:
        """Does the step, which has its id, have the letter of one that could not be sent? Raises Unpublished."""
        job_id, task = (signature.get("options") or {}).get("task_id"), signature.get("task")
        if not isinstance(job_id, str) or not isinstance(task, str) or signature.get("subtask_type"):
            return False
        consumer = self._consumer(task) or consumer_of(self.copy.arrival.service, task)
        key = Key(job_key(job_id, b""), consumer)

        def look() -> bool:
            with self.harness.database.begin() as session:
                letter = self.harness.store.letters.open_of(session, key)
            return letter is not None and not letter.attempts and not letter.deliveries

        return hold(look, self.seconds, f"the letter of what comes after job {self.copy.key.job_id}")

    def _consumer(self, task: str) -> str | None:
        spec = self._spec(task)
        return None if spec is None else spec.consumer

    def _spec(self, task: str) -> JobSpec | None:
        job = self.harness.app.tasks.get(task)
        return job.spec if getattr(job, "is_job", False) else None

    def _says(self, task: str, message: Message) -> Callable[[bytes], bool]:
        spec, mine = self._spec(task), _digest(self.harness.app, message)

        def says(known: bytes) -> bool:
            if spec is None or mine is None or known == mine:
                return known == mine
            return same_content(known, spec.signature.sent, *arguments_of(self.harness.app, message))

        return says

    def _message(
        self,
        body: Any,
        options: Mapping[str, Any],
        headers: dict[str, Any],
        properties: dict[str, Any],
        queue: str,
    ) -> Message:
        """The message; without a body where it has no form as bytes, or `body` is None."""
        headers, properties = _storable(headers), _storable(properties)
        try:
            if body is None:
                raise TypeError("several messages")
            serializer = options.get("serializer") or self.harness.app.conf.task_serializer
            content_type, encoding, data = dumps(body, serializer=serializer)
            if method := options.get("compression"):
                data, headers["compression"] = compression.compress(data, method)
        except Exception:
            return Message(b"", None, None, headers, properties, bounded(queue, 255))
        data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
        return Message(data, content_type, encoding, headers, properties, bounded(queue, 255))

    def _queue(self, headers: Mapping[str, Any], options: Mapping[str, Any]) -> str:
        """Where a replay sends it: the relay knows queues only, so not to an exchange that the step may name."""
        for queue in options.get("declare") or ():
            if name := getattr(queue, "name", None):
                return str(name)
        if not options.get("exchange") and options.get("routing_key"):
            return str(options["routing_key"])
        try:
            routed = self.harness.app.amqp.router.route({}, headers.get("task"))["queue"]
            return str(getattr(routed, "name", routed))
        except Exception:
            return str(self.harness.app.conf.task_default_queue)

    def _bury(self, message: Message, view: Mapping[str, Any], error: Exception) -> None:
        harness = self.harness
        step = self._step(message, view)
        failure = self._failure(step, error)
        limits = harness.settings.limits
        letter_id = hold(
            lambda: bury(harness.database, harness.store, step, failure, self.copy.worker, limits),
            self.seconds,
            f"the letter of what comes after job {self.copy.key.job_id}",
        )
        if letter_id is not None:
            announce.letter(harness, step.arrival, failure, reason_of(failure), letter_id)

    def _step(self, message: Message, view: Mapping[str, Any]) -> Step:
        own, headers = self.copy.arrival, message.headers
        task = headers.get("task")
        task = bounded(task, 255) if isinstance(task, str) and task else NO_TASK
        return Step(
            service=own.service,
            consumer=self._consumer(task),
            task=task,
            job_id=job_key(headers.get("id"), repr(view).encode("utf-8", "replace")),
            message=message,
            digest=_digest(self.harness.app, message),
            priority=_small(message.properties.get("priority")),
            tenant=_text(headers.get(TENANT)),
            ordering_key=_text(headers.get(ORDERING_KEY)),
            correlation_id=_text(headers.get(CORRELATION)) or own.correlation_id,
            says=self._says(task, message),
            view=view,
            parent={"job_id": own.job_id, "task": own.task, "consumer": own.consumer},
        )

    def _failure(self, step: Step, error: Exception) -> Failure:
        """`broker` where the broker does not take it, `undecodable` where it could not be written."""
        cause = unwrapped(error.__cause__ or error) or error
        own = self.copy.arrival
        text = f"{self.place} of job {own.job_id} ({own.task}) can't be sent: {said(cause)}"
        whole = bool(step.message.body)
        return Failure(
            Kind.broker if whole else Kind.undecodable,
            type(cause).__name__,
            text if whole else f"{text}; {_NO_BYTES}",
            classify(error).traceback,
            f"{step.task}:unsent:{type(cause).__name__}",
        )


def _storable(values: dict[str, Any]) -> dict[str, Any]:
    """The headers or properties as the tables keep them; as text where they have no such form."""
    try:
        codec.dumps(values)
        return values
    except Exception:
        kept = {key: value for key, value in values.items() if isinstance(value, (str, int, type(None)))}
        return kept | {"harness_raw": bounded(saferepr(values, 10_000), 10_000)}


def _digest(app: Any, message: Message) -> bytes | None:
    """As the worker that runs it makes it."""
    try:
        return digest_of(*arguments_of(app, message))
    except Exception:
        return None


def _small(value: object) -> int:
    return value if type(value) is int and -32_768 <= value <= 32_767 else 0


def _text(value: object) -> str | None:
    return bounded(value, 1000) if isinstance(value, str) else None
