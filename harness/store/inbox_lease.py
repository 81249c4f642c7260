"""What the relay does with the inbox: it leases what is due, and gives back what could not be sent."""

from collections.abc import Sequence

from sqlalchemy import func, update
from sqlalchemy.orm import Session

from harness.store.dispatch import Caps, Cursor
from harness.store.inbox_base import InboxBase
from harness.store.inbox_row import InboxRow, seconds

NO_CAPS = Caps()


class InboxLease(InboxBase):
    """The SQL of leasing, as rows; see `dispatch`."""

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
        return [self._row(row, caps.holds(row.consumer)) for row in rows]

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
