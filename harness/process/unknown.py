"""Outcome unknown: nobody can tell whether a job's external effect took place, so that a person has to look."""

import logging
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness.core.classify import classify
from harness.core.failure import Failure, Kind
from harness.core.outcome import Dead, Deferred, Duplicate, Stale
from harness.core.policy import Policy
from harness.process.busy import is_lock_timeout, stand_aside
from harness.process.copy import Copy
from harness.process.settle import Abandoned
from harness.process.spec import Limits
from harness.process.verdict import NotOurs, verdict
from harness.store.database import Database
from harness.store.inbox import InboxRow
from harness.store.processed_jobs import FenceState
from harness.store.store import Store

log = logging.getLogger("harness")


@dataclass(frozen=True, slots=True)
class Owner:
    """Takes a claim back for a verdict: the fence from `claimed`, and the inbox row that has the claim's `number`."""

    number: int

    def __call__(self, session: Session, store: Store, copy: Copy, limits: Limits) -> InboxRow:
        if not store.fence.leave_claim(session, copy.key, FenceState.WAITING, limits.fence_wait_ms):
            raise NotOurs
        row = store.inbox.lock(session, copy.key, self.number)
        if row is None:
            raise NotOurs
        return row


def give_up(
    database: Database,
    store: Store,
    copy: Copy,
    found: Abandoned,
    limits: Limits,
    payload: Any,
    failure: Failure | None = None,
    blocks: bool = False,
) -> Dead | Deferred | Duplicate | Stale:
    """Write the letter of a claim that nobody will complete. `failure` is how the parent has seen its child end.

    Where somebody else was faster, the copy is what they have made of it. Raises DatabaseAway.
    """
    unknown = error_of(failure) if failure else _expired()
    try:
        take = Owner(found.generation)
        return verdict(database, store, copy, unknown, Policy(), limits, payload=payload, blocks=blocks, take=take)
    except Abandoned:
        return Stale()  # claimed again meanwhile; the inbox row has the job
    except DBAPIError as error:
        if not is_lock_timeout(error):
            raise
        return stand_aside(database, store, copy, limits)


def error_of(failure: Failure) -> Failure:
    """How a run was cut off, as an unknown outcome."""
    text = f"{failure.message}; its handler had been called, so whether it took effect can't be told"
    return Failure(Kind.outcome_unknown, failure.error_type, text, failure.traceback, failure.fingerprint)


def lost(what: str, error: BaseException | None = None) -> Failure:
    """The handler was called, and what came of it is not known here."""
    cause = classify(error) if error is not None else None
    detail = f" ({cause.error_type}: {cause.message})" if cause else ""
    return Failure(
        Kind.outcome_unknown,
        "OutcomeUnknown",
        f"{what}{detail}: whether the job took effect can't be told",
        cause.traceback if cause else "",
        "outcome-unknown:lost",
    )


def refused(error: BaseException) -> Failure:
    """The handler has returned, so its effect has most likely taken place; PostgreSQL does not take the record."""
    cause = classify(error)
    text = (
        f"the handler returned, so its effect has most likely taken place, but what it wrote could not be committed: "
        f"{cause.error_type}: {cause.message}"
    )
    return Failure(Kind.outcome_unknown, cause.error_type, text, cause.traceback, cause.fingerprint)


def tell_late(database: Database, store: Store, copy: Copy, how: str) -> None:
    """A handler has come to its end after its claim was given up: nothing of it is committed, but it may have acted."""
    log.error(
        "job %s: its handler %s after its claim had been given up; what it wrote is rolled back, its effect outside "
        "may have taken place. Its letter says so.",
        copy.key.job_id,
        how,
    )
    try:
        with database.begin() as session:
            store.fence.look(session, copy.key, lock=True)
            store.letters.note(session, copy.key, "came_late", handler=how, worker=copy.worker)
    except Exception as error:
        log.warning("the letter of job %s could not be told so: %s", copy.key.job_id, type(error).__name__)


def _expired() -> Failure:
    text = (
        "its claim has run out: whoever called its handler was killed, stopped or cut off from PostgreSQL before it "
        "could say what came of it, so whether it took effect can't be told"
    )
    return Failure(Kind.outcome_unknown, "ClaimExpired", text, fingerprint="outcome-unknown:expired")
