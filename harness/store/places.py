"""Places in the order of a key: those of dead jobs, the keys that a dead one blocks, and places of another server."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, delete, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

#: The lowest number of a transaction that PostgreSQL gives.
_BEFORE_ALL = 3
#: Of a place that no transaction of this cluster can have made.
_AHEAD = "xid >= pg_snapshot_xmax(pg_current_snapshot())"
#: Jobs behind a letter are counted up to here.
MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job stands in the order of its key."""

    service: str
    ordering_key: str
    xid: int
    sequence: int


class Places:
    """The SQL of `order_places`, which came with revision 0004: on older tables no letter blocks anything."""

    def __init__(self, inbox: Table, letters: Table, places: Table) -> None:
        self.inbox, self.letters, self.places = inbox, letters, places
        self._blocked = f"""
            SELECT p.ordering_key, p.letter_id, d.task, d.job_id, d.reason, d.status, d.updated_at AS since,
                (SELECT count(*) FROM (
                    SELECT 1 FROM {inbox.fullname} i
                    WHERE i.service = p.service AND i.ordering_key = p.ordering_key AND i.sequence IS NOT NULL
                      AND (i.xid, i.sequence) > (p.xid, p.sequence) LIMIT :most
                ) behind) AS waiting
            FROM {places.fullname} p JOIN {letters.fullname} d ON d.id = p.letter_id
            WHERE p.service = :service AND p.blocks AND d.resolved_at IS NULL
            ORDER BY d.updated_at, p.letter_id LIMIT :limit
        """

    def has_places(self, session: Session) -> bool:
        """Does this schema have the table? Asked until it does, once per connection."""
        info = session.connection().info
        if not info.get("order_places"):
            query = text("SELECT to_regclass(:name) IS NOT NULL")
            info["order_places"] = bool(session.scalar(query, {"name": self.places.fullname}))
        return bool(info["order_places"])

    def keep_place(self, session: Session, letter_id: int, place: Place, *, blocks: bool) -> None:
        """Remember the place of a dead job for its replay; with `blocks` its key waits until the letter is closed."""
        if not self.has_places(session):
            return
        row = insert(self.places).values(
            letter_id=letter_id,
            service=place.service,
            ordering_key=place.ordering_key,
            xid=place.xid,
            sequence=place.sequence,
            blocks=blocks,
        )
        session.execute(row.on_conflict_do_update(index_elements=["letter_id"], set_={"blocks": row.excluded.blocks}))

    def place_of(self, session: Session, letter_id: int) -> Place | None:
        """The place of a dead job; None where it has none, or died before this table was there."""
        if not self.has_places(session):
            return None
        t = self.places
        row = session.execute(select(t).where(t.c.letter_id == letter_id)).first()
        return None if row is None else Place(row.service, row.ordering_key, row.xid, row.sequence)

    def blocks(self, session: Session, letter_id: int) -> bool:
        """Does the key of this letter wait until the letter is closed?"""
        if not self.has_places(session):
            return False
        t, d = self.places, self.letters
        query = select(t.c.letter_id).join(d, d.c.id == t.c.letter_id)
        return (
            session.execute(query.where(t.c.letter_id == letter_id, t.c.blocks, d.c.resolved_at.is_(None))).first()
            is not None
        )

    def forget_places(self, session: Session, service: str, limit: int) -> int:
        """Delete up to `limit` places whose letters are closed or gone; returns how many."""
        if not self.has_places(session):
            return 0
        t, d = self.places, self.letters
        closed = (
            select(t.c.letter_id)
            .join(d, d.c.id == t.c.letter_id, isouter=True)
            .where(t.c.service == service, (d.c.id.is_(None)) | (d.c.resolved_at.is_not(None)))
            .limit(limit)
        )
        gone = delete(t).where(t.c.letter_id.in_(closed.scalar_subquery())).returning(t.c.letter_id)
        return len(session.execute(gone).all())

    # -- for people ---------------------------------------------------------------------------------------------------

    def blocked(self, session: Session, service: str, limit: int | None = None) -> list[dict[str, Any]]:
        """The keys that wait for a letter, the longest blocked first: the letter, and how many jobs wait behind it."""
        if not self.has_places(session):
            return []
        rows = session.execute(text(self._blocked), {"service": service, "limit": limit, "most": MOST_COUNTED})
        return [dict(row) for row in rows.mappings()]

    def before(self, session: Session, service: str, ordering_key: str) -> tuple[str, int | None]:
        """What the jobs of a key wait for: the id of the oldest one in the inbox, and the letter that blocks it."""
        i = self.inbox.c
        oldest = session.scalar(
            select(i.job_id)
            .where(i.service == service, i.ordering_key == ordering_key, i.sequence.is_not(None))
            .order_by(i.xid, i.sequence)
            .limit(1)
        )
        if not self.has_places(session):
            return oldest or "", None
        t, d = self.places, self.letters
        letter = (
            select(t.c.letter_id)
            .join(d, d.c.id == t.c.letter_id)
            .where(t.c.service == service, t.c.ordering_key == ordering_key, t.c.blocks, d.c.resolved_at.is_(None))
        )
        return oldest or "", session.scalar(letter.order_by(t.c.xid, t.c.sequence).limit(1))

    def ahead(self, session: Session, service: str) -> int:
        """How many rows and letters have a place that no transaction of this cluster can have made."""
        query = f"""
            SELECT count(*) FROM {self.inbox.fullname}
            WHERE service = :service AND sequence IS NOT NULL AND {_AHEAD}"""
        if self.has_places(session):
            letters = f"SELECT count(*) FROM {self.places.fullname} WHERE service = :service AND {_AHEAD}"
            query = f"SELECT ({query}) + ({letters})"
        return int(session.scalar(text(query), {"service": service}) or 0)

    def renumber(self, session: Session, service: str) -> int:
        """Put all places of a service before those of this cluster's transactions, in the order that they have.

        For a database that was restored into another cluster. Returns how many rows and letters were changed.
        """
        tables = {self.inbox: "id", self.places: "letter_id"} if self.has_places(session) else {self.inbox: "id"}
        # What was put in since is no part of it: its numbers are higher than those that are given here.
        since = f"(SELECT max(created_at) FROM {self.inbox.fullname} WHERE service = :service AND {_AHEAD})"
        every = (
            f"SELECT 'inbox' AS of, id, xid, sequence FROM {self.inbox.fullname} WHERE service = :service "
            f"AND sequence IS NOT NULL AND ({_AHEAD} OR created_at <= {since})"
        )
        if len(tables) > 1:
            every += (
                f" UNION ALL SELECT 'order_places', letter_id, xid, sequence FROM {self.places.fullname} "
                "WHERE service = :service"
            )
        changes = {
            t.name: f"UPDATE {t.fullname} t SET xid = '{_BEFORE_ALL}', sequence = n.number FROM new n "
            f"WHERE n.of = '{t.name}' AND n.id = t.{key} RETURNING 1"
            for t, key in tables.items()
        }
        done = ", ".join(f"changed_{name} AS ({sql})" for name, sql in changes.items())
        total = " + ".join(f"(SELECT count(*) FROM changed_{name})" for name in changes)
        numbers = f"SELECT e.*, row_number() OVER (ORDER BY xid, sequence) AS number FROM ({every}) e"
        return int(session.scalar(text(f"WITH new AS ({numbers}), {done} SELECT {total}"), {"service": service}) or 0)
