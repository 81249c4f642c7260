"""A late copy, whose fence may have been pruned, is not run by way of the inbox either."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from harness.core.failure import Failure, Kind
from harness.core.message import Message
from harness.core.outcome import Dead, Deferred
from harness.core.policy import Policy
from harness.core.reason import Reason
from harness.core.signature import Signature
from harness.process import Copy, JobSpec, Limits, deliver, record
from harness.store import Database, Store
from harness.store.inbox import Arrival

LIMITS = Limits(fence_wait=0.5, outage_hold=3.0, too_old=86_400.0)
ARRIVAL = Arrival("s", "s/t", "t", "j1", Message(b"[[],{},{}]", "application/json", "utf-8", {}, {}, "q"))
SPEC = JobSpec("s", "t", "s/t", Signature.of(lambda: None, {}))
STORE = Store.of("core")


@pytest.mark.parametrize("kind", [Kind.crashed, Kind.timed_out, Kind.unknown_task])
def test_a_late_copy_whose_first_delivery_failed_in_the_parent(database: str, kind: Kind) -> None:
    db, ran = Database(database), []
    late = Copy(ARRIVAL, sent_at=datetime.now(UTC) - timedelta(days=2))
    try:
        assert isinstance(record(db, STORE, late, Failure(kind, "x", "y"), Policy(), LIMITS), Deferred)
        with db.begin() as session:
            row = STORE.inbox.find(session, late.key)
        assert row is not None
        again = replace(late, generation=row.generation, dispatches=1)
        outcome = deliver(db, STORE, again, SPEC, [], {}, lambda *_: ran.append(1), LIMITS)
        assert isinstance(outcome, Dead)
        assert (outcome.reason, ran) == (Reason.too_old, [])
    finally:
        db.dispose()
