"""What was sent while a test looked: messages are caught where Celery would hand them to the broker."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

from celery import Celery
from celery.backends.cache import CacheBackend
from kombu import Producer, Queue

from harness.store.inbox import InboxRow
from harness.worker.decode import arguments_of
from harness.worker.one_by_one import OneByOne
from harness.worker.outgoing import Line
from harness.worker.publisher import Publisher
from harness.worker.wire import Wire, wire_of

#: What stands for the worker's name in failures and audit rows.
WORKER = "harness.testing"
_MISSING = object()


@dataclass(frozen=True)
class Sent:
    """One job or task that was sent. `args` and `kwargs` are as its worker will read them, so after serialisation.

    `via`: "celery" for a message (`delay`, `apply_async`, `send_task`), "inbox" for a row that the code under test has
    written in the transaction. `headers` are Celery's, with `eta` and `expires` as ISO 8601 texts.
    """

    task: str
    job_id: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    queue: str
    via: Literal["celery", "inbox"]
    headers: dict[str, Any] = field(repr=False)
    wire: Wire = field(repr=False)

    def __str__(self) -> str:
        said = [repr(value) for value in self.args] + [f"{name}={value!r}" for name, value in self.kwargs.items()]
        by = "" if self.via == "celery" else ", through the inbox"
        return f"{self.task}({', '.join(said)}) as {self.job_id!r} to queue {self.queue!r}{by}"


def sent_of(app: Celery, wire: Wire, via: Literal["celery", "inbox"]) -> Sent:
    """Read a message."""
    args, kwargs = arguments_of(app, wire.message)
    headers = wire.message.headers
    return Sent(
        str(headers.get("task")),
        str(headers.get("id")),
        tuple(args),
        dict(kwargs),
        wire.message.queue,
        via,
        headers,
        wire,
    )


@contextmanager
def caught(app: Celery, take: Callable[[Sent], None]) -> Iterator[None]:
    """Call `take` with whatever `app` sends inside the block; nothing goes to the broker, no connection is opened."""

    def keep(wire: Wire) -> None:
        take(sent_of(app, wire, "celery"))

    recorder = _Recorder(app, keep)
    # The project's own would connect: to wait for an answer that never comes, to count the parts of a chord.
    backend = CacheBackend(app, url="memory://")
    with (
        attribute(app, "producer_or_acquire", lambda producer=None: nullcontext(recorder)),
        attribute(app, "_backend_cache", backend),
    ):
        yield


def dispatched(app: Celery, row: InboxRow) -> Wire:
    """A row of the inbox as the copy that the relay sends of it."""
    found: list[Wire] = []
    _Relayed(app, found.append)([row])
    return found[0]


@contextmanager
def attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute of this very object for a while."""
    before = owner.__dict__.get(name, _MISSING)
    owner.__dict__[name] = value
    try:
        yield
    finally:
        if before is _MISSING:
            del owner.__dict__[name]
        else:
            owner.__dict__[name] = before


class _Recorder(Producer):  # type: ignore[misc]
    """kombu's producer up to the point where the message would go out: serialised, compressed, with its headers."""

    def __init__(self, app: Celery, keep: Callable[[Wire], None]) -> None:
        super().__init__(None)
        self.__connection__ = app.connection_for_write()
        self.keep = keep

    def publish(self, body: Any, *args: Any, **kwargs: Any) -> Any:
        return super().publish(body, *args, **(kwargs | {"retry": False}))

    def _publish(
        self,
        body: Any,
        priority: Any,
        content_type: Any,
        content_encoding: Any,
        headers: Any,
        properties: Any,
        routing_key: Any,
        mandatory: Any,
        immediate: Any,
        exchange: Any,
        declare: Any,
        *rest: Any,
        **options: Any,
    ) -> None:
        queues = [entity.name for entity in declare or () if isinstance(entity, Queue)]
        message = SimpleNamespace(
            body=body,
            content_type=content_type,
            content_encoding=content_encoding,
            headers=dict(headers or {}),
            properties=dict(properties) | {"priority": priority},
            delivery_info={"exchange": exchange, "routing_key": routing_key},
        )
        self.keep(wire_of(message, queues[0] if queues else str(routing_key), WORKER))


class _Relayed(Publisher):
    """The relay's publisher with the recorder in the place of its connection."""

    def __init__(self, app: Celery, keep: Callable[[Wire], None]) -> None:
        super().__init__(app)
        self._recorder = OneByOne(_Recorder(app, keep))

    def _open(self) -> Line:
        return self._recorder
