"""A copy whose job another one works on for longer than it can wait: the inbox keeps the job, no try is spent."""

from sqlalchemy.exc import DBAPIError

from harness.core.failure import Failure, Kind
from harness.core.outcome import Deferred, Stale
from harness.process.copy import Copy
from harness.process.spec import Limits
from harness.store.contents import is_other
from harness.store.database import Database, DatabaseAway, sqlstate
from harness.store.store import Store

LOCK_NOT_AVAILABLE = "55P03"


def is_lock_timeout(error: BaseException) -> bool:
    """Did PostgreSQL give up waiting for a lock?"""
    return isinstance(error, DBAPIError) and sqlstate(error) == LOCK_NOT_AVAILABLE


def stand_aside(database: Database, store: Store, copy: Copy, limits: Limits) -> Deferred | Stale:
    """Make sure that the inbox has the job, due soon, without touching the fence that another copy holds."""
    with database.begin() as session:
        if copy.generation is not None:
            # Its row is there, unless the job has been decided: a row that is put in now would outlive the job. Having
            # waited is no sign of a crash, so the delivery is not counted.
            if not store.inbox.put_back(session, copy.key, copy.generation, delay=limits.busy_delay):
                return Stale()
        elif (known := store.inbox.find(session, copy.key)) is not None:
            if is_other(store, known, copy.arrival):
                raise DatabaseAway("the inbox has another content under this id: the fence is to decide first")
        else:
            store.fence.bound_waits(session, limits.fence_wait_ms)
            try:
                with session.begin_nested():
                    store.inbox.add(session, copy.arrival, delay=limits.busy_delay)
            except DBAPIError as error:
                if not is_lock_timeout(error):
                    raise
                raise DatabaseAway("the inbox row of this job is being written by another copy") from error
    busy = Failure(Kind.retry_later, "Busy", "another copy of this job is at work")
    return Deferred(0, limits.busy_delay, busy, False)
