"""Counts a delivery before the work: a job that kills its worker every time must not do so for ever."""

from sqlalchemy.orm import Session

from harness.core.failure import Failure, Kind
from harness.core.outcome import Duplicate, Stale
from harness.process.conflict import check
from harness.process.copy import Copy
from harness.process.settle import settle
from harness.process.spec import Limits
from harness.store.contents import evict
from harness.store.database import Database
from harness.store.processed_jobs import FenceState
from harness.store.store import Store


def count(database: Database, store: Store, copy: Copy, limits: Limits) -> tuple[Copy, int] | Duplicate | Stale:
    """Count this delivery in a transaction of its own; the copy goes on as one of the inbox.

    A copy straight from the broker first moves its job into the inbox: no delivery was counted for it yet, and the
    first that the broker calls redelivered is the second.
    """
    with database.begin() as session:
        if copy.generation is None:
            if store.fence.take(
                session,
                copy.key,
                FenceState.WAITING,
                relayed=False,
                digest=copy.arrival.digest,
                wait_ms=limits.fence_wait_ms,
            ):
                if (generation := _move_in(session, store, copy, limits)) is not None:
                    return copy.adopted(generation), 2
                # A copy that found the fence busy, or a producer's transaction, has put the row there: it is counted.
            else:
                fence = store.fence.look(session, copy.key)
                if fence is None or fence.state is not FenceState.WAITING:
                    return settle(session, store, copy)
                check(session, store, copy, fence)  # else it would take another content's row for its own
        store.fence.bound_waits(session, limits.fence_wait_ms)
        deliveries = store.inbox.count_delivery(session, copy.key, copy.generation or 0, lease=limits.recount_lease)
        if deliveries is None:
            return settle(session, store, copy)
        return copy.adopted(), deliveries


def killed_its_workers(deliveries: int) -> Failure:
    """What is said of a job that was delivered once too often."""
    text = (
        f"delivered {deliveries - 1} times without an outcome: each time the worker died, or its connection broke, "
        "while the job ran"
    )
    return Failure(Kind.crashed, "WorkerLost", text)


def _move_in(session: Session, store: Store, copy: Copy, limits: Limits) -> int | None:
    """Put the job into the inbox, its second delivery counted; the row's generation, None where it is there already."""
    # Where a row was evicted, its late copies have its generation: not this one.
    fresh = evict(session, store, copy.arrival)
    if not store.inbox.add(session, copy.arrival, lease=limits.recount_lease, deliveries=2, dispatches=1, fresh=fresh):
        return None
    row = store.inbox.find(session, copy.key) if fresh else None
    return row.generation if row is not None else 0
