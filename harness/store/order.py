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

from enum import StrEnum

from sqlalchemy import Table
from sqlalchemy.orm import Session

from harness.store.driver import first_row
from harness.store.places import Places
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
    """Another job of the key is at work now, in its transaction or under a claim."""
    gone = "gone"
    """The row is not this copy's any more."""


class Order(Places):
    """The SQL of turns; of places it has that of `Places`."""

    def __init__(self, inbox: Table, letters: Table, places: Table, fences: Table) -> None:
        super().__init__(inbox, letters, places)
        self.fences = fences
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
            f"EXISTS (SELECT 1 FROM {self._in_flight(row)} AND other.available_at > now() AND {self.is_claim('other')})"
        )

    def is_claim(self, row: str) -> str:
        """SQL: the row keeps the message of a job whose handler has been called under a claim."""
        # Asked for EXISTS, the planner may read all the fences there are into memory.
        return (
            f"(SELECT fence.state FROM {self.fences.fullname} fence WHERE fence.job_id = {row}.job_id "
            f"AND fence.consumer = {row}.consumer) = 'claimed'"
        )

    def _in_flight(self, row: str) -> str:
        """SQL behind FROM: the rows of the key, but for this one, that are leased: few, in an index of their own."""
        return (
            f"{self.inbox.fullname} other WHERE other.service = {row}.service "
            f"AND other.ordering_key = {row}.ordering_key AND other.sequence IS NOT NULL "
            f"AND other.leased_until IS NOT NULL AND other.relay_error IS NULL AND other.id <> {row}.id"
        )

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
