"""Dead letters: the evidence of every job that did not succeed, until a person or a replay has settled it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, Table, and_, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import INTERVAL, insert
from sqlalchemy.orm import Session

from harness.core.message import Message
from harness.core.reason import Reason
from harness.store.inbox import Arrival, message_of
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
    job_id: str | None = None
    fingerprint: str | None = None
    tenant: str | None = None
    older: float | None = None
    newer: float | None = None
    unresolved: bool = False


class DeadLetters:
    """The SQL of `dead_letters`."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def _letter(self, row: Row[Any]) -> Letter:
        plain = {
            name: getattr(row, name)
            for name in Letter.__dataclass_fields__
            if name not in ("message", "reason", "digest")
        }
        digest = None if row.digest is None else bytes(row.digest)
        return Letter(message=message_of(row), reason=Reason(row.reason), digest=digest, **plain)

    def write(
        self,
        session: Session,
        arrival: Arrival,
        *,
        reason: Reason,
        attempts: int,
        deliveries: int,
        failures: Sequence[dict[str, Any]],
        payload: Any,
    ) -> int:
        """Write the letter of a job; a letter that was replayed and failed again is the same row, to be reviewed again.

        `failures` are all of this life of the job, the last one last. Returns the letter's id.
        """
        t = self.table
        last = failures[-1]
        new = insert(t).values(
            **arrival.columns(),
            payload=payload,
            reason=str(reason),
            attempts=attempts,
            deliveries=deliveries,
            error_type=last["error_type"],
            error_message=last["message"],
            traceback=last["traceback"],
            fingerprint=last["fingerprint"],
            failures=list(failures),
        )
        again = new.on_conflict_do_update(
            index_elements=["consumer", "job_id"],
            index_where=t.c.resolved_at.is_(None),
            set_={
                **{
                    name: new.excluded[name]
                    for name in (
                        "reason",
                        "attempts",
                        "deliveries",
                        "error_type",
                        "error_message",
                        "traceback",
                    )
                },
                "fingerprint": new.excluded.fingerprint,
                "failures": t.c.failures.op("||")(new.excluded.failures),
                "status": "pending_review",
                "alerted_at": None,
                "updated_at": func.now(),
                "lineage": t.c.lineage.op("||")(
                    func.jsonb_build_object(
                        "event",
                        "failed_again",
                        "at",
                        func.now(),
                        "replay",
                        t.c.replays,
                        "reason",
                        new.excluded.reason,
                    )
                ),
            },
        ).returning(t.c.id)
        return session.execute(again).scalar_one()

    def get(self, session: Session, letter_id: int, *, lock: bool = False) -> Letter | None:
        """One letter, held until this transaction ends with `lock`."""
        query = select(self.table).where(self.table.c.id == letter_id)
        row = session.execute(query.with_for_update() if lock else query).first()
        return None if row is None else self._letter(row)

    def open_of(self, session: Session, key: Key) -> Letter | None:
        """The unresolved letter of a job."""
        t = self.table
        row = session.execute(
            select(t).where(t.c.consumer == key.consumer, t.c.job_id == key.job_id, t.c.resolved_at.is_(None))
        ).first()
        return None if row is None else self._letter(row)

    def replayed(self, session: Session, letter_id: int, actor: str) -> None:
        """Mark a held letter as handed to the inbox again."""
        t = self.table
        event = func.jsonb_build_object(
            "event", "replayed", "at", func.now(), "actor", actor, "replay", t.c.replays + 1
        )
        session.execute(
            update(t)
            .where(t.c.id == letter_id)
            .values(
                status="replayed",
                replays=t.c.replays + 1,
                reviewer=actor,
                reviewed_at=func.now(),
                updated_at=func.now(),
                surfaced=None,
                lineage=t.c.lineage.op("||")(event),
            )
        )

    def resolve(self, session: Session, key: Key) -> int | None:
        """The job has succeeded: close its open letter, if it has one. Returns the letter's id."""
        t = self.table
        return session.execute(
            update(t)
            .where(t.c.consumer == key.consumer, t.c.job_id == key.job_id, t.c.resolved_at.is_(None))
            .values(status="replayed", resolved_at=func.now(), updated_at=func.now())
            .returning(t.c.id)
        ).scalar()

    def discard(self, session: Session, letter_id: int, *, actor: str, reason: str) -> None:
        """Close a held letter for good; the database refuses an empty reason."""
        t = self.table
        session.execute(
            update(t)
            .where(t.c.id == letter_id)
            .values(
                status="discarded",
                discard_reason=reason,
                reviewer=actor,
                reviewed_at=func.now(),
                resolved_at=func.now(),
                updated_at=func.now(),
            )
        )

    def surface(self, session: Session, letter_id: int, why: str) -> None:
        """Hand a held letter to a person: the sweep leaves it alone from now on."""
        t = self.table
        session.execute(update(t).where(t.c.id == letter_id).values(surfaced=why, updated_at=func.now()))

    def list(self, session: Session, service: str, which: Filter, *, limit: int | None = 50) -> list[Letter]:
        """Letters of a service, newest first."""
        t = self.table
        rows = session.execute(select(t).where(*self._where(service, which)).order_by(t.c.id.desc()).limit(limit))
        return [self._letter(row) for row in rows]

    def ids(self, session: Session, service: str, which: Filter) -> "list[int]":
        """The ids of the letters that fit, oldest first."""
        t = self.table
        return [*session.execute(select(t.c.id).where(*self._where(service, which)).order_by(t.c.id)).scalars()]

    def count(self, session: Session, service: str, which: Filter) -> int:
        """How many letters fit."""
        query = select(func.count()).select_from(self.table).where(*self._where(service, which))
        return session.execute(query).scalar_one()

    def claim_pending(self, session: Session, service: str, task: str, after_id: int) -> Letter | None:
        """The next letter of `task` to sweep, held until this transaction ends; one that another sweep holds is skipped."""
        t = self.table
        row = session.execute(
            select(t)
            .where(
                t.c.service == service,
                t.c.task == task,
                t.c.status == "pending_review",
                t.c.surfaced.is_(None),
                t.c.id > after_id,
            )
            .order_by(t.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        ).first()
        return None if row is None else self._letter(row)

    def prune(self, session: Session, service: str, tenant: str | None, ttl: timedelta, limit: int) -> int:
        """Delete up to `limit` resolved letters of a tenant that were resolved longer ago than `ttl`."""
        t = self.table
        old = (
            select(t.c.id)
            .where(
                t.c.service == service,
                t.c.tenant.is_not_distinct_from(tenant),
                t.c.status != "pending_review",
                t.c.resolved_at < func.now() - literal(ttl, INTERVAL),
            )
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        return len(session.execute(delete(t).where(t.c.id.in_(old)).returning(t.c.id)).all())

    def tenants(self, session: Session, service: str) -> "list[str | None]":
        """Every tenant that has letters."""
        t = self.table
        return [*session.execute(select(t.c.tenant).where(t.c.service == service).distinct()).scalars()]

    def _where(self, service: str, which: Filter) -> tuple[ColumnElement[bool], ...]:
        t = self.table
        terms: list[ColumnElement[bool]] = [t.c.service == service]
        if which.ids:
            terms.append(t.c.id.in_(which.ids))
        for name in ("status", "task", "job_id", "fingerprint", "tenant"):
            value = getattr(which, name)
            if value is not None:
                terms.append(t.c[name] == value)
        if which.reason is not None:
            terms.append(t.c.reason == str(which.reason))
        if which.older is not None:
            terms.append(t.c.created_at < func.now() - literal(timedelta(seconds=which.older), INTERVAL))
        if which.newer is not None:
            terms.append(t.c.created_at > func.now() - literal(timedelta(seconds=which.newer), INTERVAL))
        if which.unresolved:
            terms.append(t.c.resolved_at.is_(None))
        return (and_(*terms),)
