"""A job that was put into the inbox by a worker that did not know its task, and so not the task's own consumer name."""

from dataclasses import replace

from harness.core.failure import Failure, Kind
from harness.core.outcome import Deferred, Duplicate, Stale
from harness.process.copy import Copy, row_arrival
from harness.process.settle import Abandoned, settle
from harness.process.spec import Limits
from harness.store.database import Database
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
        if row.letter_id is not None:
            store.letters.rekey(session, row.letter_id, consumer)
        arrival = replace(row_arrival(copy, row), consumer=consumer)
        added = store.inbox.add(session, arrival, attempts=row.attempts, failures=row.failures, letter_id=row.letter_id)
        if not added and row.letter_id is not None:
            store.inbox.name_letter(session, Key(arrival.job_id, consumer), row.letter_id)
    return Deferred(row.attempts, 0.0, Failure(Kind.retry_later, "Rekeyed", f"goes on as {consumer}"), False)
