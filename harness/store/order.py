"""Order: the jobs of one ordering key of a service run one after another, in the order of their places.

A place is (xid, sequence): the transaction that put the job in, and its number there. A job that was put in after
another one's commit has the higher xid, so that order needs no lock in the users' transactions; only below the oldest
transaction that is still open can nothing older come any more (the watermark). Only rows with a `sequence` have a
place: those that were enqueued or received with an `ordering_key`.

A row has its turn when no older row of its key is in the inbox, whatever it waits for, no open letter with an older
place blocks the key, and the key is free. Who works on a job of a key holds the key's advisory lock, so that two of
them never overlap, wherever a replay comes from.
"""

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Table, delete, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from harness.store.driver import first_row
from harness.store.processed_jobs import Key

#: What `relay_error` says of a row whose turn it is not: it is looked at again when the one before it has gone.
WAITS_ITS_TURN = "waits for its turn"
#: Of a row that is the next of its key, but above the watermark.
HELD_BY_TRANSACTION = "held by a transaction that is still open"


class Turn(StrEnum):
    """What a copy finds that wants to work on a job with a place."""

    ours = "ours"
    """Nothing is before it, and the key is locked until this transaction ends."""
    behind = "behind"
    """An older job of the key is in the inbox, or blocks it."""
    taken = "taken"
    """Another job of the key is at work now."""
    gone = "gone"
    """The row is not this copy's any more."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job stands in the order of its key."""

    service: str
    ordering_key: str
    xid: int
    sequence: int


class Order:
    """The SQL of order; `order_places` came with revision 0004, and on older tables no letter blocks anything."""

    def __init__(self, inbox: Table, letters: Table, places: Table) -> None:
        self.inbox, self.letters, self.places = inbox, letters, places
        mine = "consumer = %(consumer)s AND job_id = %(job_id)s AND generation = %(generation)s"
        # Two statements in one round trip: the second looks when the lock is held, and so sees what was committed
        # under it before.
        self._turn = {
            blocks: (
                f"SELECT set_config('harness.turn', pg_try_advisory_xact_lock({self.lock('i')})::text, true) "
                f"FROM {inbox.fullname} i WHERE {mine}; "
                f"SELECT current_setting('harness.turn'), {self.is_first('i', blocks)} "
                f"FROM {inbox.fullname} i WHERE {mine}"
            )
            for blocks in (False, True)
        }

    def lock(self, row: str) -> str:
        """SQL: the key's advisory lock, for a row of the inbox called `row`."""
        return f"hashtextextended('{self.inbox.fullname}:' || {row}.service || '/' || {row}.ordering_key, 0)"

    def is_first(self, row: str, blocks: bool) -> str:
        """SQL: no older row of the key is there and (with `blocks`) no letter with an older place blocks it."""
        place = f"({row}.xid, {row}.sequence)"
        # The oldest is one probe of the index. Asked for any older one, the planner would rather read the table.
        sql = (
            f"{row}.id = (SELECT oldest.id FROM {self.inbox.fullname} oldest WHERE oldest.service = {row}.service "
            f"AND oldest.ordering_key = {row}.ordering_key AND oldest.sequence IS NOT NULL "
            f"ORDER BY oldest.xid, oldest.sequence LIMIT 1)"
        )
        if blocks:
            sql += (
                f" AND NOT EXISTS (SELECT 1 FROM {self.places.fullname} place JOIN {self.letters.fullname} letter "
                f"ON letter.id = place.letter_id WHERE place.service = {row}.service "
                f"AND place.ordering_key = {row}.ordering_key AND place.blocks "
                f"AND (place.xid, place.sequence) < {place} AND letter.resolved_at IS NULL)"
            )
        return sql

    def is_free(self, row: str) -> str:
        """SQL: no other row of the key is with the broker or at work, as one may be that a replay goes before."""
        return (
            f"NOT EXISTS (SELECT 1 FROM {self.inbox.fullname} other WHERE other.service = {row}.service "
            f"AND other.ordering_key = {row}.ordering_key AND other.sequence IS NOT NULL "
            f"AND other.leased_until IS NOT NULL AND other.relay_error IS NULL AND other.leased_until > now() "
            f"AND other.id <> {row}.id)"
        )

    def has_places(self, session: Session) -> bool:
        """Does this schema have the table? Asked until it does, once per connection."""
        info = session.connection().info
        if not info.get("order_places"):
            query = text("SELECT to_regclass(:name) IS NOT NULL")
            info["order_places"] = bool(session.scalar(query, {"name": self.places.fullname}))
        return bool(info["order_places"])

    def take_turn(self, session: Session, key: Key, generation: int) -> Turn:
        """Lock the key of this row until the transaction ends, if the row has its turn. Waits for nobody."""
        sql = self._turn[self.has_places(session)]
        parameters = {"consumer": key.consumer, "job_id": key.job_id, "generation": generation}
        found = first_row(session.connection(), sql, parameters)
        if found is None:
            return Turn.gone
        locked, is_first = found
        return Turn.taken if locked != "true" else Turn.ours if is_first else Turn.behind

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
