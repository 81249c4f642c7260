"""Dead letters as they are read."""

from typing import Any

from sqlalchemy import Row, Table, func, select
from sqlalchemy.orm import Session

from harness.core.reason import Reason
from harness.store.inbox import message_of, seconds
from harness.store.letter import Filter, Letter
from harness.store.processed_jobs import Key


class Letters:
    """The SQL that looks."""

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

    def get(self, session: Session, service: str, letter_id: int, *, lock: bool = False) -> Letter | None:
        """One letter of a service, held until this transaction ends with `lock`."""
        t = self.table
        query = select(t).where(t.c.id == letter_id, t.c.service == service)
        row = session.execute(query.with_for_update() if lock else query).first()
        return None if row is None else self._letter(row)

    def open_of(self, session: Session, key: Key, *, younger: float | None = None) -> Letter | None:
        """The open letter of a job; with `younger`, if its last verdict is less than so many seconds old."""
        t = self.table
        query = select(t).where(t.c.consumer == key.consumer, t.c.job_id == key.job_id, t.c.resolved_at.is_(None))
        if younger is not None:
            query = query.where(t.c.updated_at > func.now() - seconds(younger))
        row = session.execute(query).first()
        return None if row is None else self._letter(row)

    def key_of(self, session: Session, service: str, letter_id: int) -> Key | None:
        """Whose letter it is: neither ever changes, so that the fence can be locked before the letter is."""
        t = self.table
        query = select(t.c.job_id, t.c.consumer).where(t.c.id == letter_id, t.c.service == service)
        row = session.execute(query).first()
        return None if row is None else Key(row.job_id, row.consumer)

    def find(self, session: Session, service: str, which: Filter, *, limit: int | None = 50) -> list[Letter]:
        """Letters of a service, newest first."""
        t = self.table
        rows = session.execute(select(t).where(*which.terms(self.table, service)).order_by(t.c.id.desc()).limit(limit))
        return [self._letter(row) for row in rows]

    def ids(self, session: Session, service: str, which: Filter) -> list[int]:
        """The ids of the letters that fit, oldest first."""
        t = self.table
        return [*session.execute(select(t.c.id).where(*which.terms(self.table, service)).order_by(t.c.id)).scalars()]

    def count(self, session: Session, service: str, which: Filter) -> int:
        """How many letters fit."""
        query = select(func.count()).select_from(self.table).where(*which.terms(self.table, service))
        return session.execute(query).scalar_one()

    def pending_ids(self, session: Session, service: str, task: str, consumer: str) -> list[int]:
        """The letters of a job that the sweep has to look at, oldest first."""
        t = self.table
        query = select(t.c.id).where(
            t.c.service == service,
            t.c.task == task,
            t.c.consumer == consumer,
            t.c.status == "pending_review",
            t.c.surfaced.is_(None),
        )
        return [*session.execute(query.order_by(t.c.id)).scalars()]
