"""The inbox's table, and how its rows are read."""

from typing import Any

from sqlalchemy import Row, Table, literal_column, select
from sqlalchemy.orm import Session

from harness.store.dispatch import Dispatch
from harness.store.inbox_row import InboxRow, message_of
from harness.store.order import Order
from harness.store.processed_jobs import Key

_PLAIN = [name for name in InboxRow.__dataclass_fields__ if name not in ("message", "digest", "xid", "capped")]


class InboxBase:
    """Finds one row by its key."""

    def __init__(self, table: Table, fences: Table, order: Order) -> None:
        self.table = table
        self.fences = fences
        self.dispatch = Dispatch(table, order)
        self._fresh = table.info["generation"].next_value()
        self._due: Any = literal_column("coalesce(leased_until, available_at)")
        self._columns = [column for column in table.c if column.name != "expires_at"]

    def _row(self, row: Row[Any], capped: bool = False) -> InboxRow:
        return InboxRow(
            capped=capped,
            message=message_of(row),
            digest=None if row.digest is None else bytes(row.digest),
            xid=int(row.xid),  # as text, where the statement is not of SQLAlchemy's making
            **{name: getattr(row, name) for name in _PLAIN},
        )

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

    def _is(self, key: Key) -> tuple[Any, Any]:
        return (self.table.c.consumer == key.consumer, self.table.c.job_id == key.job_id)
