"""What a failure leads to: a deferral or a dead letter, decided behind the fence."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from harness.core.failure import Failure, Kind
from harness.core.outcome import Dead, Deferred, Duplicate, Stale
from harness.core.policy import GiveUp, Policy, Retry, decide
from harness.core.reason import Reason
from harness.core.view import jsonable
from harness.process import history
from harness.process.copy import Copy, row_arrival
from harness.process.settle import settle_alone
from harness.process.spec import Limits
from harness.store.contents import evict
from harness.store.database import Database, seconds_until
from harness.store.inbox import InboxRow
from harness.store.processed_jobs import FenceState
from harness.store.store import Store


class NotOurs(Exception):
    """Rolls back a fence that was taken for a row that has gone on without this copy."""


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


#: Takes the fence as `waiting` for a verdict; see `own`.
Own = Callable[[Session, Store, Copy, Limits], InboxRow | None]


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
    blocks: bool = False,
    take: Own | None = None,
) -> Deferred | Dead | Duplicate | Stale:
    """Record what becomes of the job after `failure`, in one transaction, fence first.

    With `final` it is dead for that reason, whatever the policy says; with `blocks` its ordering key then waits for a
    person. Where another copy has decided, the verdict is void and the copy is a duplicate or stale.
    """
    try:
        with database.begin() as session:
            row = (take or own)(session, store, copy, limits)
            return _record(session, store, copy, row, failure, policy, final, payload, blocks)
    except NotOurs:
        return settle_alone(database, store, copy, limits)


def _record(
    session: Session,
    store: Store,
    copy: Copy,
    row: InboxRow | None,
    failure: Failure,
    policy: Policy,
    final: Reason | None,
    payload: Any,
    blocks: bool,
) -> Deferred | Dead:
    attempt = (row.attempts if row else 0) + 1
    entry = failure.to_dict() | {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "attempt": attempt,
        "worker": copy.worker,
    }
    before = row.failures if row else []
    waited = -seconds_until(session, row.created_at) if row else 0.0
    if failure.kind is Kind.not_ready:
        after = history.not_ready_after(before, waited)
        entry, waited = history.noted(entry, after), waited - after
    failures = history.add(before, entry)
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
                row_arrival(copy, row) if row else copy.arrival,
                reason=reason,
                attempts=attempt,
                deliveries=row.deliveries if row else 1,
                failures=failures,
                payload=jsonable(payload),
            )
            if row is not None and row.place is not None:
                store.order.keep_place(session, letter_id, row.place, blocks=blocks)
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
