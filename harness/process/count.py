"""Counts a delivery before the work: a job that kills its worker every time must not do so for ever."""

from harness.core.outcome import Duplicate, Stale
from harness.process.conflict import evict
from harness.process.copy import Copy
from harness.process.settle import settle
from harness.process.spec import Limits
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
                evict(session, store, copy.arrival)
                if store.inbox.add(session, copy.arrival, lease=limits.recount_lease, deliveries=2, dispatches=1):
                    return copy.adopted(), 2
                # A copy that found the fence busy, or a producer's transaction, has put the row there: it is counted.
            else:
                fence = store.fence.look(session, copy.key)
                if fence is None or fence.state is not FenceState.WAITING:
                    return settle(session, store, copy)
        store.fence.bound_waits(session, limits.fence_wait_ms)
        deliveries = store.inbox.count_delivery(session, copy.key, copy.generation or 0, lease=limits.recount_lease)
        if deliveries is None:
            return settle(session, store, copy)
        return copy.adopted(), deliveries
