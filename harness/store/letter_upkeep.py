"""What beat does with dead letters by itself: the sweep claims them, the unalerted are found, the old are pruned."""

from datetime import timedelta

from sqlalchemy import ColumnElement, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import INTERVAL
from sqlalchemy.orm import Session

from harness.store.letter import Letter
from harness.store.letters import Letters


class LetterUpkeep(Letters):
    """The SQL of it."""

    def claim(self, session: Session, service: str, letter_id: int) -> Letter | None:
        """Have a pending letter for one sweep alone, until this transaction ends; None when it is not to be had.

        The claim is an advisory lock and not a lock of the row: who waits for a fence may hold no letter, and a
        verdict must not wait for a gate.
        """
        t = self.table
        name = func.hashtextextended(f"{t.fullname}:{letter_id}", 0)
        if not session.execute(select(func.pg_try_advisory_xact_lock(name))).scalar_one():
            return None
        # A statement of its own: it sees what the sweep that held the claim before has committed.
        letter = self.get(session, service, letter_id)
        pending = letter is not None and letter.status == "pending_review" and letter.surfaced is None
        return letter if pending else None

    def alerted(self, session: Session, letter_id: int) -> None:
        """Note that the harness's subscribers (log, Sentry, alerts) have been told of the letter.

        Waits for nobody: a letter that a replay holds at this moment may be told of a second time.
        """
        t = self.table
        free = select(t.c.id).where(t.c.id == letter_id, t.c.alerted_at.is_(None)).with_for_update(skip_locked=True)
        session.execute(update(t).where(t.c.id == free.scalar_subquery()).values(alerted_at=func.clock_timestamp()))

    def unalerted(self, session: Session, service: str, *, after: timedelta, within: timedelta) -> list[Letter]:
        """The pending letters, oldest first, of which nobody was told `after` their verdict; no older than `within`.

        One caller at a time gets them, until its transaction ends; the others get none.
        """
        t = self.table
        name = func.hashtextextended(f"{t.fullname}:unalerted:{service}", 0)
        if not session.execute(select(func.pg_try_advisory_xact_lock(name))).scalar_one():
            return []
        query = select(t).where(
            t.c.service == service,
            t.c.status == "pending_review",
            t.c.alerted_at.is_(None),
            t.c.updated_at.between(func.now() - literal(within, INTERVAL), func.now() - literal(after, INTERVAL)),
        )
        return [self._letter(row) for row in session.execute(query.order_by(t.c.id).limit(1000))]

    def prune(self, session: Session, service: str, tenant: str | None, ttl: timedelta, limit: int) -> int:
        """Delete up to `limit` letters of a tenant that were resolved longer ago than `ttl`; returns how many."""
        t = self.table
        old = (
            select(t.c.id)
            .where(*self._prunable(service, ttl), t.c.tenant.is_not_distinct_from(tenant))
            .limit(limit)
            .with_for_update(skip_locked=True)
            .cte("old")
            .prefix_with("MATERIALIZED")
        )
        return len(session.execute(delete(t).where(t.c.id.in_(select(old.c.id))).returning(t.c.id)).all())

    def prunable_tenants(self, session: Session, service: str, ttl: timedelta) -> list[str | None]:
        """Every tenant that has letters which `prune` would delete."""
        t = self.table
        return [*session.execute(select(t.c.tenant).where(*self._prunable(service, ttl)).distinct()).scalars()]

    def _prunable(self, service: str, ttl: timedelta) -> tuple[ColumnElement[bool], ...]:
        t = self.table
        return (
            t.c.service == service,
            t.c.status != "pending_review",
            t.c.resolved_at < func.now() - literal(ttl, INTERVAL),
        )
