"""Signs of life: when relays, receivers and beat of a service were last at work, by the database's clock.

Nothing depends on them but `harness check`. The table came with revision 0002: on an older schema a sign is not left,
and nobody is seen.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from sqlalchemy import CursorResult, Table, delete, func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

RELAY, BEAT, RECEIVER = "relay", "beat", "receiver"
#: Seconds between two signs of one process, at the least.
EVERY = 15.0
#: Signs that are older are of the gone.
KEPT = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Sign:
    """`role`: relay, receiver or beat. `age` in seconds.

    `name`: the host of a relay, the task that beat has sent, the source and host of a receiver (see `receiver_of`).
    """

    role: str
    name: str
    age: float


def receiver_name(source: str, host: str) -> str:
    """The name of a sign of a receiver, one for each source that it takes in from."""
    return f"{source}@{host}"


def receiver_of(name: str) -> tuple[str, str]:
    """Source and host of such a name; a source has no @ in its name."""
    source, _, host = name.partition("@")
    return source, host


class Presence:
    """The SQL of `presence`."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def exists(self, session: Session) -> bool:
        """Does this schema have the table?"""
        found = session.scalar(text("SELECT to_regclass(:name) IS NOT NULL"), {"name": self.table.fullname})
        return bool(found)

    def touch(self, session: Session, service: str, role: str, name: str) -> bool:
        """`name` of `role` is at work now. False where the schema has no such table yet."""
        if not self.exists(session):
            return False
        row = insert(self.table).values(service=service, role=role, name=name)
        session.execute(
            row.on_conflict_do_update(index_elements=["service", "role", "name"], set_={"seen_at": func.now()})
        )
        return True

    def seen(self, session: Session, service: str) -> list[Sign]:
        """The signs of a service, the freshest first. The table must exist."""
        t = self.table
        age = func.extract("epoch", func.now() - t.c.seen_at)
        rows = session.execute(select(t.c.role, t.c.name, age).where(t.c.service == service).order_by(age))
        return [Sign(role, name, float(seconds)) for role, name, seconds in rows]

    def prune(self, session: Session, service: str) -> int:
        """Delete the signs of the gone; returns how many. 0 where the schema has no such table yet."""
        if not self.exists(session):
            return 0
        t = self.table
        gone = delete(t).where(t.c.service == service, t.c.seen_at < func.now() - KEPT)
        return cast(CursorResult[Any], session.execute(gone)).rowcount
