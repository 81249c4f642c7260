"""Expired, and too old: a copy that comes so late that its job may not run."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, literal, select
from sqlalchemy.orm import Session

from harness.core.failure import Failure, Kind
from harness.process.copy import Copy
from harness.process.failed import Failed
from harness.process.spec import Limits
from harness.store.inbox import InboxRow


def refuse_late(session: Session, copy: Copy, row: InboxRow | None, limits: Limits) -> None:
    """Expired and too old, by the database's clock; asked only where the message gives cause to."""
    if copy.expires is not None and session.scalar(select(func.now() >= literal(copy.expires))):
        raise Failed(Failure(Kind.expired, "Expired", f"expired at {copy.expires.isoformat()} before it could run"))
    if copy.sent_at is None or (row is not None and row.letter_id is not None):
        return  # a replay is a person's word
    age = timedelta(seconds=limits.too_old)
    if row is not None:
        # Put in from a late copy, whatever came of that one: its fence may have been pruned before that.
        late = row.created_at - copy.sent_at > age
    else:
        late = datetime.now(UTC) - copy.sent_at > age / 2 and bool(session.scalar(_older(copy.sent_at, age)))
    if late:
        text = f"sent at {copy.sent_at.isoformat()}: its fence may have been pruned since, so it cannot be told new"
        raise Failed(Failure(Kind.too_old, "TooOld", text))


def _older(moment: datetime, age: timedelta) -> Any:
    return select(func.now() - literal(moment) > age)
