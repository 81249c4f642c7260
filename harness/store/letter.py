"""A dead letter as it is read, and which of them are wanted."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Table, func

from harness.core.message import Message
from harness.core.reason import Reason
from harness.store.inbox import Arrival, seconds
from harness.store.processed_jobs import Key


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter."""

    id: int
    service: str
    consumer: str
    task: str
    job_id: str
    message: Message
    digest: bytes | None
    ordering_key: str | None
    sequence: int | None
    tenant: str | None
    priority: int
    correlation_id: str | None
    payload: Any
    reason: Reason
    attempts: int
    deliveries: int
    error_type: str
    error_message: str
    traceback: str
    fingerprint: str
    failures: list[dict[str, Any]]
    status: str
    reviewer: str | None
    reviewed_at: datetime | None
    discard_reason: str | None
    replays: int
    lineage: list[dict[str, Any]]
    surfaced: str | None
    alerted_at: datetime | None
    resolved_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @property
    def key(self) -> Key:
        return Key(self.job_id, self.consumer)

    @property
    def has_no_message(self) -> bool:
        """Is it of a next step of which no message could be made? It was never delivered, as every other job was."""
        return not self.deliveries and not self.message.body

    @property
    def arrival(self) -> Arrival:
        """The job as it goes into the inbox again."""
        return Arrival(
            service=self.service,
            consumer=self.consumer,
            task=self.task,
            job_id=self.job_id,
            message=self.message,
            digest=self.digest,
            ordering_key=self.ordering_key,
            sequence=self.sequence,
            tenant=self.tenant,
            priority=self.priority,
            correlation_id=self.correlation_id,
        )


@dataclass(frozen=True, slots=True)
class Filter:
    """Which letters: every field that is given must fit. `older` and `newer` are ages in seconds."""

    ids: tuple[int, ...] = ()
    status: str | None = None
    task: str | None = None
    reason: Reason | None = None
    without: tuple[Reason, ...] = ()
    job_id: str | None = None
    fingerprint: str | None = None
    tenant: str | None = None
    older: float | None = None
    newer: float | None = None
    unresolved: bool = False

    def terms(self, table: Table, service: str) -> tuple[ColumnElement[bool], ...]:
        """The WHERE of this filter, for the letters of `service`."""
        t = table.c
        terms: list[ColumnElement[bool]] = [t.service == service]
        if self.ids:
            terms.append(t.id.in_(self.ids))
        for name in ("status", "task", "job_id", "fingerprint", "tenant"):
            value = getattr(self, name)
            if value is not None:
                terms.append(t[name] == value)
        if self.reason is not None:
            terms.append(t.reason == str(self.reason))
        if self.without:
            terms.append(t.reason.not_in([str(reason) for reason in self.without]))
        if self.older is not None:
            terms.append(t.created_at < func.now() - seconds(self.older))
        if self.newer is not None:
            terms.append(t.created_at > func.now() - seconds(self.newer))
        if self.unresolved:
            terms.append(t.resolved_at.is_(None))
        return tuple(terms)
