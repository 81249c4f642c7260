"""A row of the inbox, and what one is made of: who the job is, and its exact message."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, literal
from sqlalchemy.dialects.postgresql import INTERVAL

from harness.core.message import Message
from harness.store import codec
from harness.store.places import Place
from harness.store.processed_jobs import Key


@dataclass(frozen=True, slots=True)
class InboxRow:
    """A job in the inbox."""

    id: int
    service: str
    consumer: str
    task: str
    job_id: str
    message: Message
    digest: bytes | None
    ordering_key: str | None
    sequence: int | None
    xid: int
    tenant: str | None
    priority: int
    correlation_id: str | None
    attempts: int
    deliveries: int
    dispatches: int
    generation: int
    failures: list[dict[str, Any]]
    letter_id: int | None
    created_at: datetime
    available_at: datetime
    #: Only so many rows of its consumer may be in flight; known when the relay has leased it.
    capped: bool = False

    @property
    def key(self) -> Key:
        return Key(self.job_id, self.consumer)

    @property
    def place(self) -> Place | None:
        """Where it stands in the order of its key; None for a job without order."""
        if self.ordering_key is None or self.sequence is None:
            return None
        return Place(self.service, self.ordering_key, self.xid, self.sequence)


@dataclass(frozen=True, slots=True)
class Arrival:
    """What is needed to put a job into the inbox. `xid`: its place of old, where it has one."""

    service: str
    consumer: str
    task: str
    job_id: str
    message: Message
    digest: bytes | None = None
    ordering_key: str | None = None
    sequence: int | None = None
    tenant: str | None = None
    priority: int = 0
    correlation_id: str | None = None
    xid: int | None = None

    def columns(self) -> dict[str, Any]:
        """The columns that say who the job is and what its message was."""
        return {
            "service": self.service,
            "consumer": self.consumer,
            "task": self.task,
            "job_id": self.job_id,
            "digest": self.digest,
            "ordering_key": self.ordering_key,
            "sequence": self.sequence,
            "tenant": self.tenant,
            "priority": self.priority,
            "correlation_id": self.correlation_id,
            **message_columns(self.message),
        }


def message_columns(message: Message) -> dict[str, Any]:
    """The exact message as columns."""
    return {
        "body": message.body,
        "content_type": message.content_type,
        "content_encoding": message.content_encoding,
        "headers": codec.dumps(message.headers),
        "properties": codec.dumps(message.properties),
        "queue": message.queue,
    }


def message_of(row: Row[Any]) -> Message:
    """The exact message of a row."""
    return Message(
        body=bytes(row.body),
        content_type=row.content_type,
        content_encoding=row.content_encoding,
        headers=codec.loads(bytes(row.headers)),
        properties=codec.loads(bytes(row.properties)),
        queue=row.queue,
    )


def seconds(value: float) -> Any:
    """An SQL interval of so many seconds."""
    return literal(timedelta(seconds=value), INTERVAL)
