"""Order: the jobs of one ordering key of a service run one after another, in the order of their places.

A place is (xid, sequence): the transaction that put the job in, and its number there. A job that was put in after
another one's commit has the higher xid, so that order needs no lock in the users' transactions; only below the oldest
transaction that is still open can nothing older come any more (the watermark). Only rows with a `sequence` have a
place: those that were enqueued or received with an `ordering_key`.

A row has its turn when no older row of its key is in the inbox, whatever it waits for, no open letter with an older
place blocks the key, and the key is free. Who works on a job of a key holds the key's advisory lock, so that two of
them never overlap, wherever a replay comes from. A job with external effects lets that lock go with its claim: from
then on the claimed row, which is leased until the claim's end, says that the key is not free.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Table, delete, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from harness.store.driver import first_row
from harness.store.processed_jobs import Key

#: What `relay_error` says of a row whose turn it is not: it is looked at again when the one before it has gone.
WAITS_ITS_TURN = "waits for its turn"
#: Of a row that is the next of its key, but above the watermark.
HELD_BY_TRANSACTION = "held by a transaction that is still open"
#: The lowest number of a transaction that PostgreSQL gives.
_BEFORE_ALL = 3
#: Of a place that no transaction of this cluster can have made.
_AHEAD = "xid >= pg_snapshot_xmax(pg_current_snapshot())"
#: Jobs behind a letter are counted up to here.
MOST_COUNTED = 10_000


class Turn(StrEnum):
    """What a copy finds that wants to work on a job with a place."""

    ours = "ours"
    """Nothing is before it, and the key is locked until this transaction ends."""
    behind = "behind"
    """An older job of the key is in the inbox, or blocks it."""
    taken = "taken"
    """Another job of the key is at work now, in its transaction or under a claim."""
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

    def __init__(self, inbox: Table, letters: Table, places: Table, fences: Table) -> None:
        self.inbox, self.letters, self.places, self.fences = inbox, letters, places, fences
        mine = "consumer = %(consumer)s AND job_id = %(job_id)s AND generation = %(generation)s"
        # Two statements in one round trip: the second looks when the lock is held, and so sees what was committed
        # under it before.
        self._turn = {
            blocks: (
                f"SELECT set_config('harness.turn', pg_try_advisory_xact_lock({self.lock('i')})::text, true) "
                f"FROM {inbox.fullname} i WHERE {mine}; "
                f"SELECT current_setting('harness.turn'), {self.is_first('i', blocks)}, {self.is_claimed('i')} "
                f"FROM {inbox.fullname} i WHERE {mine}"
            )
            for blocks in (False, True)
        }

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
        """SQL: no other row of the key is with the broker, at work or claimed; a replay may find one."""
        return f"NOT EXISTS (SELECT 1 FROM {self._in_flight(row)} AND other.leased_until > now())"

    def is_claimed(self, row: str) -> str:
        """SQL: the handler of another job of the key is at work under a claim whose time is not over."""
        return (
            f"EXISTS (SELECT 1 FROM {self._in_flight(row)} AND other.available_at > now() AND EXISTS (SELECT 1 "
            f"FROM {self.fences.fullname} fence WHERE fence.job_id = other.job_id "
            f"AND fence.consumer = other.consumer AND fence.state = 'claimed'))"
        )

    def _in_flight(self, row: str) -> str:
        """SQL behind FROM: the rows of the key, but for this one, that are leased: few, in an index of their own."""
        return (
            f"{self.inbox.fullname} other WHERE other.service = {row}.service "
            f"AND other.ordering_key = {row}.ordering_key AND other.sequence IS NOT NULL "
            f"AND other.leased_until IS NOT NULL AND other.relay_error IS NULL AND other.id <> {row}.id"
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
        locked, is_first, claimed = found
        if locked != "true" or claimed:
            return Turn.taken
        return Turn.ours if is_first else Turn.behind

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
