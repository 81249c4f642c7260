"""What stands in the tables of one job, in words; and the clock of the rows that a test's transaction has written."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Table, func, literal, select, update
from sqlalchemy.orm import Session

from harness.store.inbox import InboxRow, seconds
from harness.store.letter import Letter
from harness.store.processed_jobs import FenceState, Key
from harness.store.schema import tables_of
from harness.store.store import Store


@dataclass(frozen=True)
class JobRows:
    """All that the tables know of one job.

    `state` is its fence's: "done", "waiting", "dead", "claimed", or None without one. `row` is its row in the inbox,
    due in `due_in` seconds; `letter` its newest dead letter.
    """

    job_id: str
    consumer: str
    state: str | None
    row: InboxRow | None
    due_in: float
    letter: Letter | None

    @property
    def ended(self) -> bool:
        """Done or dead, and nothing waits in the inbox."""
        return self.state in (FenceState.DONE, FenceState.DEAD) and self.row is None

    @property
    def deferred(self) -> bool:
        """It waits for another try, a replay or its time; a job that was only enqueued, or is claimed, does not."""
        return self.row is not None and not self.enqueued and self.state != FenceState.CLAIMED

    @property
    def enqueued(self) -> bool:
        """It stands in the inbox and nobody has worked on it yet."""
        return self.row is not None and is_enqueued(self.row)

    @property
    def error(self) -> str:
        """The last failure, as `type: message`; "" without one."""
        failures = self.row.failures if self.row else self.letter.failures if self.letter else []
        return f"{failures[-1]['error_type']}: {failures[-1]['message']}" if failures else ""

    @property
    def attempts(self) -> int:
        """How many tries it has had, where it waits or is dead; 0 otherwise, for success leaves no count."""
        return self.row.attempts if self.row else self.letter.attempts if self.letter else 0

    def __str__(self) -> str:
        tries = f"{self.attempts} {'try' if self.attempts == 1 else 'tries'}"
        last = f", last {self.error}" if self.error else ""
        if self.enqueued:
            said = f"enqueued, due in {self.due_in:.1f} s, not tried yet"
        elif self.row is not None and self.state == FenceState.CLAIMED:
            said = f"claimed, for {self.due_in:.1f} s at most"
        elif self.row is not None:
            said = f"deferred, due in {self.due_in:.1f} s, {tries} spent{last}"
        elif self.letter is not None and self.letter.resolved_at is None:
            said = f"dead ({self.letter.reason}) after {tries}{last}; letter {self.letter.id}"
        else:
            said = self.state or "nothing"
        return f"{self.job_id!r} of {self.consumer}: {said}"


def is_enqueued(row: InboxRow) -> bool:
    """Was it written by whoever sent the job, rather than by a verdict or a replay?"""
    return not (row.generation or row.attempts or row.failures or row.letter_id)


def look(
    session: Session, schema: str, service: str, *, job_id: str | None = None, mine: bool = False
) -> list[JobRows]:
    """The jobs of a service in the order of their fences; with `mine`, those that this very transaction has touched."""
    tables, store = tables_of(schema), Store.of(schema)
    fences, inbox, letters = tables.processed_jobs, tables.inbox, tables.dead_letters
    # Rows of this transaction carry its time (to the microsecond), and the inbox also its number.
    found: dict[Key, str | None] = {}
    for row in session.execute(
        select(fences.c.job_id, fences.c.consumer, fences.c.state)
        .where(func.starts_with(fences.c.consumer, f"{service}/"), *_of(fences, job_id))
        .where(*((fences.c.processed_at == func.now(),) if mine else ()))
        .order_by(literal(1))
    ):
        found[Key(row.job_id, row.consumer)] = row.state
    for table, own in (
        (inbox, inbox.c.xid == func.pg_current_xact_id()),
        (letters, letters.c.updated_at == func.now()),
    ):
        keys = select(table.c.job_id, table.c.consumer).where(table.c.service == service, *_of(table, job_id))
        for job, consumer in session.execute(keys.where(own) if mine else keys):
            key = Key(job, consumer)
            if key not in found:
                fence = store.fence.look(session, key)
                found[key] = None if fence is None else str(fence.state)
    return [_rows(session, store, tables.dead_letters, service, key, state) for key, state in found.items()]


def _of(table: Table, job_id: str | None) -> tuple[ColumnElement[bool], ...]:
    return () if job_id is None else (table.c.job_id == job_id,)


def _rows(session: Session, store: Store, letters: Table, service: str, key: Key, state: str | None) -> JobRows:
    row = store.inbox.find(session, key)
    newest = session.execute(
        select(letters.c.id)
        .where(letters.c.consumer == key.consumer, letters.c.job_id == key.job_id)
        .order_by(letters.c.id.desc())
        .limit(1)
    ).scalar()
    letter = None if newest is None else store.letters.get(session, service, newest)
    due_in = 0.0 if row is None else max(0.0, _seconds_until(session, row))
    return JobRows(key.job_id, key.consumer, state, row, due_in, letter)


def _seconds_until(session: Session, row: InboxRow) -> float:
    return float(session.scalar(select(func.extract("epoch", literal(row.available_at) - func.now()))) or 0.0)


class Clock:
    """Moves the rows that this transaction has put into the inbox back in time, as if it had passed for them.

    PostgreSQL's now() stands still inside a transaction. What other transactions have written stays as it is.
    """

    def __init__(self, schema: str, service: str) -> None:
        self.store, self.service = Store.of(schema), service
        self.table = tables_of(schema).inbox

    def next(self, session: Session) -> tuple[Key, float] | None:
        """The job that is due first and in how many seconds (0: now)."""
        t = self.table
        due: Any = func.coalesce(t.c.leased_until, t.c.available_at)
        row = session.execute(
            select(t.c.job_id, t.c.consumer, func.extract("epoch", due - func.now()).label("due_in"))
            .where(*self._mine())
            .order_by(due, t.c.id)
            .limit(1)
        ).first()
        return None if row is None else (Key(row.job_id, row.consumer), max(0.0, float(row.due_in)))

    def passes(self, session: Session, duration: float) -> None:
        """Let so many seconds pass."""
        t = self.table
        times = (t.c.created_at, t.c.available_at, t.c.leased_until)
        session.execute(
            update(t).where(*self._mine()).values({column.name: column - seconds(duration) for column in times})
        )

    def lease(self, session: Session, key: Key) -> InboxRow | None:
        """The row as the relay takes it: dispatched once more, its first dispatch counted as a delivery."""
        t = self.table
        session.execute(
            update(t)
            .where(t.c.job_id == key.job_id, t.c.consumer == key.consumer)
            .values(
                dispatches=t.c.dispatches + 1,
                deliveries=t.c.deliveries + func.least(1, func.greatest(0, 1 - t.c.dispatches)),
                leased_until=func.now() + seconds(300.0),
            )
        )
        return self.store.inbox.find(session, key)

    def _mine(self) -> Iterator[ColumnElement[bool]]:
        yield self.table.c.service == self.service
        yield self.table.c.xid == func.pg_current_xact_id()
