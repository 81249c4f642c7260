"""A producer's eta: waited for in the inbox, where no time-out or restart touches it."""

from datetime import datetime

from harness.core.failure import Failure, Kind
from harness.core.outcome import Deferred, Duplicate, Stale
from harness.process.copy import Copy
from harness.process.settle import settle_alone
from harness.process.spec import Limits
from harness.process.verdict import NotOurs, own, put_off
from harness.store.database import Database, seconds_until
from harness.store.store import Store


def wait_for(
    database: Database, store: Store, copy: Copy, eta: datetime, limits: Limits
) -> Deferred | Duplicate | Stale | None:
    """Put the job off until `eta`; None when that has come, by the database's clock."""
    try:
        with database.begin() as session:
            delay = seconds_until(session, eta)
            if delay <= 0:
                return None
            row = own(session, store, copy, limits)
            put_off(session, store, copy, row, delay=delay, attempts=row.attempts if row else 0, failures=[])
    except NotOurs:
        return settle_alone(database, store, copy, limits)
    return Deferred(0, delay, Failure(Kind.retry_later, "Eta", f"waits until {eta.isoformat()}"), False)
