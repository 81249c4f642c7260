"""What people, and those who wait, ask of the inbox."""

from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from harness.store.inbox_base import InboxBase
from harness.store.inbox_row import InboxRow


class InboxView(InboxBase):
    """Reads, and changes nothing."""

    def waiting(self, session: Session, service: str) -> int:
        """How many rows the service has."""
        t = self.table
        return session.execute(select(func.count()).select_from(t).where(t.c.service == service)).scalar_one()

    def rows_of(self, session: Session, service: str, job_id: str) -> list[InboxRow]:
        """The rows of an id, one for each of its consumers."""
        t = self.table
        query = select(*self._columns).where(t.c.service == service, t.c.job_id == job_id).order_by(t.c.id)
        return [self._row(row) for row in session.execute(query)]

    def overview(
        self, session: Session, service: str, *, limit: int | None = 50, job_id: str | None = None
    ) -> list[dict[str, Any]]:
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
                func.extract("epoch", func.clock_timestamp() - t.c.created_at).label("age"),
                t.c.failures[-1].label("last_failure"),
                func.extract("epoch", self._due - func.clock_timestamp()).label("due_in"),
                and_(t.c.leased_until > func.clock_timestamp(), t.c.relay_error.is_(None)).is_(True).label("leased"),
                (self.fences.c.state == "claimed").is_(True).label("claimed"),
                t.c.available_at,
            )
            .outerjoin(self.fences, (self.fences.c.job_id == t.c.job_id) & (self.fences.c.consumer == t.c.consumer))
            .where(t.c.service == service, *([] if job_id is None else [t.c.job_id == job_id]))
            .order_by(self._due, t.c.id)
            .limit(limit)
        )
        return [dict(row) | {"due_in": float(row["due_in"]), "age": float(row["age"])} for row in rows.mappings()]

    def seconds_until_due(self, session: Session, service: str) -> float | None:
        """Seconds until the next row is due (0 or less: now), None when the inbox is empty."""
        t = self.table
        soonest = session.execute(
            select(func.extract("epoch", func.min(self._due) - func.clock_timestamp())).where(t.c.service == service)
        ).scalar()
        return None if soonest is None else float(soonest)
