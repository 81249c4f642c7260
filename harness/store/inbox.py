"""The inbox: jobs that wait (retry, replay, enqueue) or are in trouble, each with its exact message.

A row belongs to the copy that carries its `generation`. Every deferral draws a new one, so that a late copy of an
earlier dispatch can neither run nor decide.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import case, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from harness.store.inbox_lease import InboxLease
from harness.store.inbox_row import Arrival, InboxRow, message_columns, message_of, seconds
from harness.store.inbox_view import InboxView
from harness.store.processed_jobs import Key

__all__ = ["Arrival", "Inbox", "InboxRow", "message_columns", "message_of", "seconds"]


class Inbox(InboxLease, InboxView):
    """The SQL of `inbox`: rows come, change hands and go, in the transaction of an outcome."""

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
