"""A message of a source in the receiver's hand: how it was read, and what it is called where it can't be read."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness.core.errors import HarnessError
from harness.core.failure import Failure, Kind
from harness.core.incoming import Delivered, Incoming, Unfit, Unreadable
from harness.core.message import job_key
from harness.store.enqueueing import Entry
from harness.store.inbox import Arrival
from harness.worker.receive import entry_of
from harness.worker.source import Source
from harness.worker.unpack import LARGEST, unpack
from harness.worker.wire import CONSUMER, GENERATION, Wire, id_of, wire_of


class Away(HarnessError):
    """The database can't take anything now; the messages stay in hand. `what` is the matter with it."""

    def __init__(self, why: str, what: str = "the database is away") -> None:
        super().__init__(why)
        self.what = what


@dataclass(eq=False)
class Taken:
    """A message in hand. `read` is the row that it becomes, or what is wrong with it."""

    source: Source
    message: Any
    wire: Wire
    read: Entry | Failure
    failures: int = 0
    not_before: float = 0.0
    tell: list[Callable[[], None]] = field(default_factory=list)
    decided: bool = False

    @property
    def replayed(self) -> bool:
        """Is it the relay's copy of a message that became a letter of this source before?"""
        marks = self.wire.marks
        return GENERATION in marks and marks.get(CONSUMER) == self.source.spec.consumer


def look(source: Source, message: Any, worker: str) -> Taken:
    """Read a message; never raises for what is in it. `worker`: how this process is called in letters."""
    wire = wire_of(message, source.queue.name, worker)
    read: Entry | Failure
    try:
        read = _read(source, message, wire)
    except Unfit as error:
        read = Failure(Kind.invalid, "Unfit", str(error), fingerprint=f"{source.name}:unfit")
    except Unreadable as error:
        read = Failure(Kind.undecodable, "Unreadable", str(error), fingerprint=f"{source.name}:unreadable")
    except Exception as error:
        kind = type(error).__name__
        text = f"{kind} while it was read or written as a job: {error}"
        read = Failure(Kind.undecodable, kind, text, fingerprint=f"{source.name}:{kind}")
    return Taken(source, message, wire, read)


def _read(source: Source, message: Any, wire: Wire) -> Entry:
    if message.errors:
        raise Unreadable(f"its body can't be unpacked: {message.errors[0][1]!r}")
    exact = wire.message
    body = exact.body
    if len(body) > LARGEST:
        raise Unreadable(f"its body has {len(body):,} bytes; up to {LARGEST:,} are read")
    if compression := exact.headers.get("compression"):
        body = unpack(body, compression)
    info = message.delivery_info if isinstance(message.delivery_info, dict) else {}
    made = source.read(
        Delivered(
            body=body,
            headers=exact.headers,
            properties=exact.properties,
            content_type=exact.content_type,
            content_encoding=exact.content_encoding,
            routing_key=str(info.get("routing_key") or ""),
            queue=source.queue.name,
        )
    )
    if not isinstance(made, Incoming) or not isinstance(made.id, str) or not made.id:
        raise Unfit(f"the read= of source {source.name!r} returned no Incoming with an id")
    return entry_of(source.job, made, source.name)


def arrival_of(one: Taken) -> Arrival:
    """The message as its source's own: what is left of it when it can't be read."""
    spec, message = one.source.spec, one.wire.message
    own = id_of(one.wire) if one.replayed else job_key(message.properties.get("message_id"), message.body)
    correlation = message.properties.get("correlation_id")
    return Arrival(
        service=spec.service,
        consumer=spec.consumer,
        task=spec.task,
        job_id=own,
        message=message,
        digest=hashlib.sha256(message.body).digest(),
        correlation_id=job_key(correlation, b"") if isinstance(correlation, str) and correlation else own,
    )
