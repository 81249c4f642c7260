"""The audit log: who did what to which letter, when and why. Append-only; triggers refuse everything else."""

from typing import Any

from sqlalchemy import Table, insert, select
from sqlalchemy.orm import Session


class Audit:
    """The SQL of `audit_log`."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def write(
        self,
        session: Session,
        *,
        service: str,
        actor: str,
        action: str,
        letter_id: int,
        consumer: str,
        job_id: str,
        reason: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Add a row; it commits together with the act that it tells of."""
        session.execute(
            insert(self.table).values(
                service=service,
                actor=actor,
                action=action,
                letter_id=letter_id,
                consumer=consumer,
                job_id=job_id,
                reason=reason,
                details=details or {},
            )
        )

    def of_letter(self, session: Session, letter_id: int) -> list[dict[str, Any]]:
        """All that was done to a letter, oldest first."""
        t = self.table
        rows = session.execute(select(t).where(t.c.letter_id == letter_id).order_by(t.c.id))
        return [dict(row) for row in rows.mappings()]
