"""The inbox: jobs that wait (retry, replay, enqueue) or are in trouble, each with its exact message.

A row belongs to the copy that carries its `generation`. Every deferral draws a new one, so that a late copy of an
earlier dispatch can neither run nor decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, Table, and_, case, delete, func, literal, literal_column, select, update
from sqlalchemy.dialects.postgresql import INTERVAL, insert
from sqlalchemy.orm import Session

from harness.core.message import Message
from harness.store import codec
from harness.store.dispatch import Caps, Cursor, Dispatch
from harness.store.order import Order
from harness.store.places import Place
from harness.store.processed_jobs import Key

NO_CAPS = Caps()


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


_PLAIN = [name for name in InboxRow.__dataclass_fields__ if name not in ("message", "digest", "xid")]


class Inbox:
    """The SQL of `inbox`."""

    def __init__(self, table: Table, fences: Table, order: Order) -> None:
        self.table = table
        self.fences = fences
        self.dispatch = Dispatch(table, order)
        self._fresh = table.info["generation"].next_value()
        self._due: Any = literal_column("coalesce(leased_until, available_at)")
        self._columns = [column for column in table.c if column.name != "expires_at"]

    def _row(self, row: Row[Any]) -> InboxRow:
        return InboxRow(
            message=message_of(row),
            digest=None if row.digest is None else bytes(row.digest),
            xid=int(row.xid),  # as text, where the statement is not of SQLAlchemy's making
            **{name: getattr(row, name) for name in _PLAIN},
        )

    def add(
        self,
        session: Session,
        arrival: Arrival,
        *,
        delay: float = 0.0,
        lease: float | None = None,
        deliveries: int = 0,
        dispatches: int = 0,
        attempts: int = 0,
        failures: Sequence[dict[str, Any]] = (),
        fresh: bool = False,
        replace: bool = False,
        letter_id: int | None = None,
    ) -> bool:
        """Put a job in; False when it is there already. `delay` and `lease` in seconds.

        `fresh` draws a new generation (after a verdict or a replay); else it is 0. `replace` takes the place of a row
        that a copy without a say has left; only who holds the fence may ask for that.
        """
        t = self.table
        new = insert(t).values(
            **arrival.columns(),
            available_at=func.now() + seconds(delay),
            leased_until=None if lease is None else func.now() + seconds(lease),
            deliveries=deliveries,
            dispatches=dispatches,
            attempts=attempts,
            failures=list(failures),
            generation=self._fresh if fresh else 0,
            letter_id=letter_id,
            **({} if arrival.xid is None else {"xid": arrival.xid}),
        )
        unique = ["consumer", "job_id"]
        if replace:
            kept = ("id", "consumer", "job_id")
            values: dict[str, Any] = {c.name: new.excluded[c.name] for c in t.c if c.name not in kept}
            # Whatever comes to stand there, the job is the replay of a letter still.
            values["letter_id"] = func.coalesce(new.excluded.letter_id, t.c.letter_id)
            # And it keeps its place, also where a copy without one has failed.
            for name in ("ordering_key", "sequence", "xid"):
                values[name] = case((new.excluded.sequence.is_(None), t.c[name]), else_=new.excluded[name])
            new = new.on_conflict_do_update(index_elements=unique, set_=values)
        else:
            new = new.on_conflict_do_nothing(index_elements=unique)
        return session.execute(new.returning(t.c.id)).first() is not None

    def name_letter(self, session: Session, key: Key, letter_id: int) -> None:
        """Have the row say that its job is the replay of a letter, if it does not say so of another one."""
        t = self.table
        session.execute(update(t).where(*self._is(key), t.c.letter_id.is_(None)).values(letter_id=letter_id))

    def find(self, session: Session, key: Key) -> InboxRow | None:
        """The committed row, whether or not somebody works on it."""
        row = session.execute(select(*self._columns).where(*self._is(key))).first()
        return None if row is None else self._row(row)

    def lock(self, session: Session, key: Key, generation: int) -> InboxRow | None:
        """The row, held until this transaction ends; None when it is gone or belongs to another copy."""
        t = self.table
        row = session.execute(
            select(*self._columns).where(*self._is(key), t.c.generation == generation).with_for_update()
        ).first()
        return None if row is None else self._row(row)

    def claim(self, session: Session, key: Key, generation: int) -> InboxRow | None:
        """Take the row out for the work: deleted if this transaction commits, held meanwhile, back if it does not."""
        t = self.table
        row = session.execute(
            delete(t).where(*self._is(key), t.c.generation == generation).returning(*self._columns)
        ).first()
        return None if row is None else self._row(row)

    def remove(self, session: Session, key: Key, *, digest: bytes | None = None) -> bool:
        """Delete the row of a job that has ended; with `digest`, only one that has the same."""
        t = self.table
        same = () if digest is None else (t.c.digest == digest,)
        return session.execute(delete(t).where(*self._is(key), *same).returning(t.c.id)).first() is not None

    def count_delivery(self, session: Session, key: Key, generation: int, *, lease: float) -> int | None:
        """Count one more delivery before the work; returns the new count, None when the row is not this copy's.

        The row is leased for at least `lease` seconds: the copy at hand is being worked on, so the relay sends no other
        one beside it. It counts as a dispatch, so that the relay's next copy is counted when it starts, not when it
        is sent: else a job would be given up for deliveries that never began.
        """
        t = self.table
        return session.execute(
            update(t)
            .where(*self._is(key), t.c.generation == generation)
            .values(
                deliveries=t.c.deliveries + 1,
                dispatches=func.greatest(t.c.dispatches, 1),
                leased_until=func.greatest(t.c.leased_until, func.now() + seconds(lease)),
            )
            .returning(t.c.deliveries)
        ).scalar()

    def defer(
        self,
        session: Session,
        row_id: int,
        *,
        delay: float,
        attempts: int,
        failures: Sequence[dict[str, Any]],
    ) -> None:
        """Let a held row wait `delay` seconds under a new generation."""
        t = self.table
        session.execute(
            update(t)
            .where(t.c.id == row_id)
            .values(
                available_at=func.now() + seconds(delay),
                leased_until=None,
                attempts=attempts,
                failures=list(failures),
                deliveries=0,
                dispatches=0,
                generation=self._fresh,
                relay_error=None,
            )
        )

    def mark_claimed(self, session: Session, key: Key, claim: int, *, seconds_left: float) -> None:
        """Have the row keep the message of a job that is claimed, under the claim's own number as its generation.

        It comes due when the claim's time is over: the copy that the relay sends then finds what became of it.
        """
        t = self.table
        session.execute(
            update(t)
            .where(*self._is(key))
            .values(
                generation=claim,
                available_at=func.clock_timestamp() + seconds(seconds_left),
                leased_until=func.clock_timestamp() + seconds(seconds_left),  # at work: in flight, its key not free
                dispatches=0,
                relay_error=None,
            )
        )

    def put_back(self, session: Session, key: Key, generation: int, *, delay: float) -> bool:
        """Let the row of a copy that found its job at work be due after `delay` seconds, its delivery not counted.

        A row that is held is being worked on and stays as it is. False when the row is not this copy's any more.
        """
        t = self.table
        mine = (*self._is(key), t.c.generation == generation)
        free = select(t.c.id).where(*mine).with_for_update(skip_locked=True).scalar_subquery()
        session.execute(
            update(t)
            .where(t.c.id == free)
            .values(
                deliveries=func.greatest(t.c.deliveries - 1, 0),
                leased_until=None,
                available_at=func.now() + seconds(delay),
            )
        )
        return session.execute(select(t.c.id).where(*mine)).first() is not None

    def lease_due(
        self,
        session: Session,
        service: str,
        *,
        limit: int,
        lease: float,
        longest: float,
        highest_first: bool = True,
        caps: Caps = NO_CAPS,
        cursor: Cursor | None = None,
    ) -> list[InboxRow]:
        """Lease up to `limit` rows that are due: by priority, fairly, each in its turn; see `dispatch`.

        `highest_first`: is 9 the most urgent priority, as RabbitMQ has it, or 0? The lease begins at `lease` seconds
        and doubles with every dispatch up to `longest`, so that a backlog in the broker does not multiply copies.
        `cursor` is moved. Rows that somebody holds are left out.
        """
        rows = self.dispatch.lease(
            session,
            service,
            limit=limit,
            lease=lease,
            longest=longest,
            highest_first=highest_first,
            caps=caps,
            cursor=Cursor() if cursor is None else cursor,
        )
        return [self._row(row) for row in rows]

    def release(
        self, session: Session, rows: Sequence[InboxRow], *, delay: float = 0.0, error: str | None = None
    ) -> None:
        """Take back the lease of rows that could not be published; due again after `delay` seconds."""
        t = self.table
        for row in rows:
            session.execute(
                update(t)
                .where(t.c.id == row.id, t.c.generation == row.generation, t.c.dispatches == row.dispatches)
                .values(
                    leased_until=None if delay == 0 else func.now() + seconds(delay),
                    dispatches=row.dispatches - 1,
                    deliveries=t.c.deliveries - (1 if row.dispatches == 1 else 0),
                    relay_error=error,
                )
            )

    def waiting(self, session: Session, service: str) -> int:
        """How many rows the service has."""
        t = self.table
        return session.execute(select(func.count()).select_from(t).where(t.c.service == service)).scalar_one()

    def overview(self, session: Session, service: str, *, limit: int | None = 50) -> list[dict[str, Any]]:
        """What waits and for how long, the next first: for people; without the messages.

        `due_in` is in seconds, below 0 when it is due already; `leased` tells a row that is with the broker, `claimed`
        one whose handler is at work outside of the database, at the latest until `available_at`.
        `last_failure` is the newest entry of its failures, None without one.
        """
        t = self.table
        names = (
            "job_id",
            "task",
            "consumer",
            "queue",
            "tenant",
            "ordering_key",
            "attempts",
            "deliveries",
            "dispatches",
        )
        rows = session.execute(
            select(
                *(t.c[name] for name in names),
                t.c.letter_id,
                t.c.relay_error,
                t.c.created_at,
                t.c.failures[-1].label("last_failure"),
                func.extract("epoch", self._due - func.clock_timestamp()).label("due_in"),
                and_(t.c.leased_until > func.clock_timestamp(), t.c.relay_error.is_(None)).is_(True).label("leased"),
                (self.fences.c.state == "claimed").is_(True).label("claimed"),
                t.c.available_at,
            )
            .outerjoin(self.fences, (self.fences.c.job_id == t.c.job_id) & (self.fences.c.consumer == t.c.consumer))
            .where(t.c.service == service)
            .order_by(self._due, t.c.id)
            .limit(limit)
        )
        return [dict(row) | {"due_in": float(row["due_in"])} for row in rows.mappings()]

    def seconds_until_due(self, session: Session, service: str) -> float | None:
        """Seconds until the next row is due (0 or less: now), None when the inbox is empty."""
        t = self.table
        soonest = session.execute(
            select(func.extract("epoch", func.min(self._due) - func.clock_timestamp())).where(t.c.service == service)
        ).scalar()
        return None if soonest is None else float(soonest)

    def _is(self, key: Key) -> tuple[Any, Any]:
        return (self.table.c.consumer == key.consumer, self.table.c.job_id == key.job_id)
