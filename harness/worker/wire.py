"""A Celery message as the harness sees it, and the headers that the relay adds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from celery.utils.time import maybe_iso8601

from harness.core.ids import uuid7_time
from harness.core.message import Message, job_key
from harness.core.text import bounded
from harness.process.copy import Copy
from harness.store.inbox import Arrival

CONSUMER = "harness_consumer"
GENERATION = "harness_generation"
#: Of a message's own times, those that hold no more: "eta", "expires" or both.
IGNORES = "harness_ignores"
DISPATCH = "harness_dispatch"
#: Of a job whose id its message does not say: a conflict's.
JOB_ID = "harness_job_id"
#: An operator's or beat's replay, on its first try.
REPLAY = "harness_replay"
#: The ordering key of a job that has a place in its order.
ORDERED = "harness_ordered"
#: Of a row whose job may be in flight so many times only: its end makes room for another one.
CAPPED = "harness_capped"
#: Never in a message: what the parent says to its child of the claim that this delivery may take.
CLAIM = "harness_claim"
CORRELATION = "harness_correlation_id"
SENT_AT = "harness_sent_at"
#: Which source took the message in.
SOURCE = "harness_source"
TENANT = "harness_tenant"
ORDERING_KEY = "harness_ordering_key"
#: What the relay adds for one dispatch; never a part of the evidence.
RELAY_HEADERS = (CONSUMER, GENERATION, IGNORES, DISPATCH, REPLAY, ORDERED, JOB_ID, CAPPED)
#: What is said by the headers of one delivery, and is none of the message's.
_MARKS = frozenset((*RELAY_HEADERS, "redelivered"))
_OF_THE_DELIVERY = frozenset(("delivery_info", "delivery_tag", "body_encoding"))
#: The task name of a message that has none that can be read.
NO_TASK = "?"
#: Of a time as `JobTask` writes it, which Python reads faster than Celery reads any other.
_OWN_LENGTH = len("2026-01-01T00:00:00.000+00:00")
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Wire:
    """A message as it goes from the worker's parent to a child: plain values, cheap to pickle.

    `head` is what the body of a protocol 1 message says instead of the headers.
    """

    message: Message
    redelivered: bool
    worker: str = ""
    revoked: str | None = None
    marks: dict[str, str] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        # A dataclass with slots is pickled field by field in Python, which every job would pay for twice.
        m = self.message
        message = (m.body, m.content_type, m.content_encoding, m.headers, m.properties, m.queue)
        return _unpacked, (message, self.redelivered, self.worker, self.revoked, self.marks, self.head)

    def with_plain_headers(self) -> "Wire":
        """The same message with its envelope as text, where PostgreSQL or pickle refuses what is in it."""
        message = self.message
        headers = {name: message.headers[name] for name in ("task", "id") if isinstance(message.headers.get(name), str)}
        try:
            text = bounded(repr((message.headers, message.properties)), 10_000)
        except Exception as error:
            text = f"headers can't be shown: {error!r}"
        return replace(self, head={}, message=replace(message, headers={**headers, "harness_raw": text}, properties={}))

    def says(self, name: str) -> Any:
        """What the message says for `name`: in its headers or, by protocol 1, in its body. None for nothing."""
        return self.head[name] if name in self.head else self.message.headers.get(name)


def _unpacked(message: tuple[Any, ...], *rest: Any) -> Wire:
    return Wire(Message(*message), *rest)


def wire_of(
    message: Any, queue: str, worker: str, *, revoked: str | None = None, head: Mapping[str, Any] | None = None
) -> Wire:
    """Read a kombu message; never raises for what is in it."""
    headers = message.headers if isinstance(message.headers, dict) else {"harness_raw": repr(message.headers)}
    info = message.delivery_info if isinstance(message.delivery_info, dict) else {}
    properties = message.properties if isinstance(message.properties, dict) else {}
    marked = not _MARKS.isdisjoint(headers)
    exact = Message(
        body=_raw_body(message),
        content_type=_text(message.content_type),
        content_encoding=_text(message.content_encoding),
        # A Redis-protocol transport marks in the headers what it delivers again.
        headers=_without_marks(headers) if marked else headers,
        properties={key: value for key, value in properties.items() if key not in _OF_THE_DELIVERY},
        queue=bounded(queue, 255),
    )
    marks = {key: str(headers[key]) for key in RELAY_HEADERS if key in headers} if marked else {}
    redelivered = bool(info.get("redelivered") or headers.get("redelivered"))
    said = {key: head[key] for key in ("id", "task", "eta", "expires") if key in head} if head else {}
    return Wire(exact, redelivered, worker, revoked, marks, said)


def _without_marks(headers: dict[Any, Any]) -> dict[Any, Any]:
    return {
        key: value
        for key, value in headers.items()
        if key not in RELAY_HEADERS and not (key == "redelivered" and value is True)
    }


def copy_of(wire: Wire, service: str, consumer: str | None = None, digest: bytes | None = None) -> Copy:
    """The delivery that a message is, with the digest of its arguments.

    Unreadable marks are as good as none: the fence decides all the same.
    """
    headers = wire.message.headers
    marks = wire.marks
    task = wire.says("task")
    task = bounded(task, 255) if isinstance(task, str) and task else NO_TASK
    raw_id = wire.says("id")
    job_id = id_of(wire)
    unknown = f"{service}/{task}"
    if GENERATION in marks and marks.get(CONSUMER) == unknown:
        # The relay's row was written by a worker that did not know the task; no other name is taken from a message.
        consumer = unknown
    ignored = marks.get(IGNORES, "").split() if GENERATION in marks else []
    arrival = Arrival(
        service=service,
        consumer=consumer or unknown,
        task=task,
        job_id=job_id,
        message=wire.message,
        digest=digest,
        ordering_key=_text(headers.get(ORDERING_KEY)) or marks.get(ORDERED),
        tenant=_text(headers.get(TENANT)),
        priority=_small(wire.message.properties.get("priority")),
        correlation_id=_correlation(headers, wire.message.properties, job_id),
    )
    return Copy(
        arrival=arrival,
        generation=_number(marks.get(GENERATION)),
        dispatches=_number(marks.get(DISPATCH)) or 0,
        ordered=marks.get(ORDERED) if GENERATION in marks else None,
        capped=CAPPED in marks and GENERATION in marks,
        redelivered=wire.redelivered,
        eta=None if "eta" in ignored else moment(wire.says("eta")),
        expires=None if "expires" in ignored else moment(wire.says("expires")),
        sent_at=moment(headers.get(SENT_AT)) or (uuid7_time(raw_id) if isinstance(raw_id, str) else None),
        revoked=wire.revoked,
        worker=wire.worker,
        claim=marks.get(CLAIM) if marks else None,
    )


def id_of(wire: Wire) -> str:
    """The id of a message's job: what the relay says, else what the message says, else the digest of its body."""
    said = wire.marks.get(JOB_ID) if GENERATION in wire.marks else None
    return job_key(said or wire.says("id"), wire.message.body)


def moment(value: Any) -> datetime | None:
    """An aware time from an ISO 8601 header, None for none or nonsense; at the latest one that every zone can show."""
    if not isinstance(value, (str, datetime)) or not value:
        return None
    try:
        own = isinstance(value, str) and len(value) == _OWN_LENGTH and value[10] == "T" and value.endswith("+00:00")
        read: datetime = datetime.fromisoformat(str(value)) if own else maybe_iso8601(value)
        return min(read if read.tzinfo else read.replace(tzinfo=UTC), _LATEST)
    except (ValueError, TypeError, OverflowError, AttributeError):
        return None


def _correlation(headers: dict[str, Any], properties: dict[str, Any], job_id: str) -> str:
    # As `correlation_id` Celery sends the task's own id, which says nothing of where the message comes from.
    for value in (headers.get(CORRELATION), properties.get("correlation_id"), headers.get("root_id")):
        text = _text(value)
        if text and text != job_id:
            return text
    return job_id


def _raw_body(message: Any) -> bytes:
    body = getattr(message, "raw_body", None)
    body = message.body if body is None else body
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    return b"" if body is None else bytes(body)


def _text(value: Any) -> str | None:
    return bounded(value, 1000) if isinstance(value, str) else None


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 19 else None


def _small(value: Any) -> int:
    return value if type(value) is int and -32_768 <= value <= 32_767 else 0
