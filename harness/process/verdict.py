"""What a failure leads to: a deferral or a dead letter, decided behind the fence."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from harness.core.failure import Failure
from harness.core.outcome import Dead, Deferred, Duplicate, Stale
from harness.core.policy import GiveUp, Policy, Retry, decide
from harness.core.reason import Reason
from harness.core.view import jsonable
from harness.process.conflict import evict
from harness.process.copy import Copy
from harness.process.settle import settle_alone
from harness.process.spec import Limits
from harness.store.database import Database, seconds_until
from harness.store.inbox import InboxRow
from harness.store.processed_jobs import FenceState
from harness.store.store import Store

#: A job that waits for hours may fail often without spending tries: the newest failures are kept.
KEPT_FAILURES = 100


class NotOurs(Exception):
    """Rolls back a fence that was taken for a row that has gone on without this copy."""


def verdict(
    database: Database,
    store: Store,
    copy: Copy,
    failure: Failure,
    policy: Policy,
    limits: Limits,
    *,
    final: Reason | None = None,
    payload: Any = None,
) -> Deferred | Dead | Duplicate | Stale:
    """Record what becomes of the job after `failure`, in one transaction, fence first.

    With `final` it is dead for that reason, whatever the policy says. Where another copy has decided, the verdict is
    void and the copy is a duplicate or stale.
    """
    try:
        with database.begin() as session:
            row = own(session, store, copy, limits)
            return _record(session, store, copy, row, failure, policy, final, payload)
    except NotOurs:
        return settle_alone(database, store, copy, limits)


def own(session: Session, store: Store, copy: Copy, limits: Limits) -> InboxRow | None:
    """Take the fence as `waiting` and, for a copy of the relay, its inbox row. NotOurs: roll back, and settle."""
    taken = store.fence.take(
        session,
        copy.key,
        FenceState.WAITING,
        relayed=copy.relayed,
        digest=copy.arrival.digest,
        wait_ms=limits.fence_wait_ms,
    )
    if not taken:
        raise NotOurs
    if copy.generation is None:
        return None
    row = store.inbox.lock(session, copy.key, copy.generation)
    if row is None:
        raise NotOurs
    return row


def _record(
    session: Session,
    store: Store,
    copy: Copy,
    row: InboxRow | None,
    failure: Failure,
    policy: Policy,
    final: Reason | None,
    payload: Any,
) -> Deferred | Dead:
    attempt = (row.attempts if row else 0) + 1
    entry = failure.to_dict() | {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "attempt": attempt,
        "worker": copy.worker,
    }
    failures = [*(row.failures if row else []), entry][-KEPT_FAILURES:]
    waited = -seconds_until(session, row.created_at) if row else 0.0
    match GiveUp(final) if final else decide(failure, attempt, policy, waited):
        case Retry(delay, spends_try):
            spent = attempt if spends_try else attempt - 1
            put_off(session, store, copy, row, delay=delay, attempts=spent, failures=failures)
            return Deferred(attempt, delay, failure, spends_try)
        case GiveUp(reason):
            store.fence.set_state(session, copy.key, FenceState.DEAD)
            if row is not None or not evict(session, store, copy.arrival):
                store.inbox.remove(session, copy.key)
            letter_id = store.letters.write(
                session,
                # The row has what was sent first; the relay's copy has headers of its own.
                replace(copy.arrival, message=row.message) if row else copy.arrival,
                reason=reason,
                attempts=attempt,
                deliveries=row.deliveries if row else 1,
                failures=failures,
                payload=jsonable(payload),
            )
            store.audit.write(
                session,
                service=copy.arrival.service,
                actor=copy.worker or "harness",
                action="dead_lettered",
                letter_id=letter_id,
                consumer=copy.key.consumer,
                job_id=copy.key.job_id,
                reason=str(reason),
                details={"attempts": attempt, "error_type": failure.error_type},
            )
            return Dead(reason, attempt, failure, letter_id)


def put_off(
    session: Session,
    store: Store,
    copy: Copy,
    row: InboxRow | None,
    *,
    delay: float,
    attempts: int,
    failures: list[dict[str, Any]],
) -> None:
    """Let the job wait in the inbox; the fence is held and says `waiting`."""
    if row is None:
        # The fence is ours, so a row that is there was left by a copy that found it busy and has no more say.
        evict(session, store, copy.arrival)
        store.inbox.add(
            session, copy.arrival, delay=delay, attempts=attempts, failures=failures, fresh=True, replace=True
        )
    else:
        store.inbox.defer(session, row.id, delay=delay, attempts=attempts, failures=failures)
