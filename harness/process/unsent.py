"""A next step that can never be sent becomes a dead letter of its own, so that the end of its job's line is evidence.

A step that is no job of this service is kept under a key that no message can name: when an operator replays it, the
relay hands it to the broker once, for nobody would ever take its row out of the inbox.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from harness.core.alike import conflict_id, digest_of_json
from harness.core.failure import Failure, Kind
from harness.core.message import Message
from harness.core.policy import GiveUp, Policy, decide
from harness.core.reason import Reason
from harness.core.view import jsonable
from harness.process.spec import Limits
from harness.store.database import Database
from harness.store.inbox import Arrival
from harness.store.outside import consumer_of
from harness.store.processed_jobs import FenceState, Key
from harness.store.store import Store


@dataclass(frozen=True, slots=True)
class Step:
    """A step as far as it could be made. `consumer`: of a job of this service, None for any other task.

    `says(digest)`: are these its arguments, said in one way or another? `view` shows its arguments to people. `parent`
    says which job it comes after: `job_id`, `task`, `consumer`.
    """

    service: str
    consumer: str | None
    task: str
    job_id: str
    message: Message
    digest: bytes | None
    priority: int
    tenant: str | None
    ordering_key: str | None
    correlation_id: str | None
    says: Callable[[bytes], bool]
    view: Mapping[str, Any]
    parent: Mapping[str, str]

    @property
    def arrival(self) -> Arrival:
        return Arrival(
            service=self.service,
            consumer=self.consumer or consumer_of(self.service, self.task),
            task=self.task,
            job_id=self.job_id,
            message=self.message,
            digest=self.digest,
            priority=self.priority,
            tenant=self.tenant,
            ordering_key=self.ordering_key,
            correlation_id=self.correlation_id or self.job_id,
        )


class _Known(Exception):
    """Rolls back: there is a job of this id, with the content `digest`, where that is known."""

    def __init__(self, digest: bytes | None) -> None:
        self.digest = digest


def bury(database: Database, store: Store, step: Step, failure: Failure, worker: str, limits: Limits) -> int | None:
    """Write fence, letter and audit row of a step; the letter's id.

    None where its job is known: it was sent before, waits in the inbox, or has its letter. Where its id stands for
    another content, it has a letter under an id of its own (`conflict`), as if it had been delivered. Raises
    DatabaseAway, and DBAPIError where another transaction holds the fence for too long.
    """
    try:
        return _write(database, store, step, step.job_id, failure, worker, limits)
    except _Known as found:
        if found.digest is None or step.digest is None or step.says(found.digest):
            return None
    text = f"{failure.message}; and its id stands for another content, which is not touched"
    other = Failure(Kind.conflict, failure.error_type, text, failure.traceback, "conflict")
    try:
        return _write(database, store, step, conflict_id(step.job_id, step.digest), other, worker, limits)
    except _Known:
        return None  # the same once more


def _write(
    database: Database, store: Store, step: Step, job_id: str, failure: Failure, worker: str, limits: Limits
) -> int | None:
    arrival = replace(step.arrival, job_id=job_id)
    key, reason = Key(job_id, arrival.consumer), reason_of(failure)
    entry = failure.to_dict() | {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "attempt": 0,
        "worker": worker,
        "parent": dict(step.parent),
    }
    with database.begin() as session:
        wait = limits.fence_wait_ms
        if not store.fence.take(session, key, FenceState.DEAD, relayed=False, digest=step.digest, wait_ms=wait):
            fence = store.fence.look(session, key)
            raise _Known(None if fence is None else fence.digest)
        if (row := store.inbox.find(session, key)) is not None:
            raise _Known(row.digest or digest_of_json(row.message))
        letter_id = store.letters.write(
            session,
            arrival,
            reason=reason,
            attempts=0,
            deliveries=0,
            failures=[entry],
            payload=jsonable({**step.view, "parent": dict(step.parent)}),
        )
        store.audit.write(
            session,
            service=step.service,
            actor=worker or "harness",
            action="dead_lettered",
            letter_id=letter_id,
            consumer=key.consumer,
            job_id=key.job_id,
            reason=str(reason),
            details={"attempts": 0, "error_type": failure.error_type, "comes_after": step.parent["job_id"]},
        )
    return letter_id


def reason_of(failure: Failure) -> Reason:
    """Why the step is dead."""
    verdict = decide(failure, 1, Policy())
    assert isinstance(verdict, GiveUp), "a step that can't be sent is not tried again by itself"
    return verdict.reason
