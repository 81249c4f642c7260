"""Tells the harness's subscribers of an outcome, after its commit."""

from typing import TYPE_CHECKING, Any

from harness.core import events
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.observe.unalerted import tell
from harness.process.copy import Copy

if TYPE_CHECKING:
    from harness.worker.harness import Harness


def outcome(harness: "Harness", copy: Copy, result: Outcome, seconds: float) -> None:
    """Emit the event of `result`; a subscriber that fails changes nothing."""
    arrival = copy.arrival
    who: dict[str, Any] = {
        "service": arrival.service,
        "consumer": arrival.consumer,
        "job_id": arrival.job_id,
        "task": arrival.task,
        "correlation_id": arrival.correlation_id,
    }
    tell_of(harness, _event(result, who, seconds))


def tell_of(harness: "Harness", event: events.JobEvent) -> None:
    """Emit it; of a new letter it is noted that it was told."""
    if isinstance(event, events.JobDead):
        tell(harness.database, harness.store, harness.events, event)
    else:
        harness.events.emit(event)


def _event(result: Outcome, who: dict[str, Any], seconds: float) -> events.JobEvent:
    match result:
        case Completed(_, attempt):
            return events.JobCompleted(**who, attempt=attempt, seconds=seconds)
        case Duplicate():
            return events.JobDuplicate(**who)
        case Stale():
            return events.JobStale(**who)
        case Deferred(attempt, delay, failure):
            return events.JobDeferred(**who, attempt=attempt, delay=delay, error_type=failure.error_type)
        case Dead(reason, attempts, failure, letter_id, job_id):
            return events.JobDead(
                **(who | ({"job_id": job_id} if job_id else {})),
                attempt=attempts,
                reason=reason,
                letter_id=letter_id,
                error_type=failure.error_type,
                message=failure.message,
                fingerprint=failure.fingerprint,
                traceback=failure.traceback,
            )
