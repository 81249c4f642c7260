"""A job that was put into the inbox by a worker that did not know its task, and so not the task's own consumer name."""

from dataclasses import replace

from sqlalchemy.orm import Session

from harness.core.failure import Failure, Kind
from harness.core.outcome import Deferred, Duplicate, Stale
from harness.process.copy import Copy, row_arrival
from harness.process.settle import Abandoned, settle
from harness.process.spec import Limits
from harness.store.contents import content_of, file, is_other
from harness.store.database import Database
from harness.store.inbox import Arrival, InboxRow
from harness.store.processed_jobs import FenceState, Key
from harness.store.store import Store


def rekey(database: Database, store: Store, copy: Copy, consumer: str, limits: Limits) -> Deferred | Duplicate | Stale:
    """Move the job's row and letter to `consumer`, whose fence tells its duplicates; the relay sends it from there."""
    with database.begin() as session:
        store.fence.bound_waits(session, limits.fence_wait_ms)
        fence = store.fence.look(session, copy.key, lock=True)
        row = store.inbox.claim(session, copy.key, copy.generation or 0)
        if row is None:
            return settle(session, store, copy)
        if fence is not None and fence.state is FenceState.CLAIMED:
            raise Abandoned(row.generation)  # it was claimed under the old name, and would run a second time
        if fence is not None:
            store.fence.forget(session, copy.key)
        arrival = replace(row_arrival(copy, row), consumer=consumer)
        there = store.inbox.find(session, Key(arrival.job_id, consumer))
        if there is not None and is_other(store, there, arrival):
            _file(session, store, arrival, row, there)
        else:
            _move(session, store, arrival, row)
    return Deferred(row.attempts, 0.0, Failure(Kind.retry_later, "Rekeyed", f"goes on as {consumer}"), False)


def _file(session: Session, store: Store, arrival: Arrival, row: InboxRow, there: InboxRow) -> None:
    """The id stands for another content under the new name: the row that was to move becomes a letter."""
    filed = file(session, store, arrival, content_of(there) or b"", content_of(arrival) or b"")
    if row.letter_id is not None:
        store.letters.supersede(session, row.letter_id, filed.letter_id)


def _move(session: Session, store: Store, arrival: Arrival, row: InboxRow) -> None:
    if row.letter_id is not None:
        store.letters.rekey(session, row.letter_id, arrival.consumer)
    added = store.inbox.add(session, arrival, attempts=row.attempts, failures=row.failures, letter_id=row.letter_id)
    if not added and row.letter_id is not None:
        store.inbox.name_letter(session, Key(arrival.job_id, arrival.consumer), row.letter_id)
