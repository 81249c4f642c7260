"""Tells the harness's subscribers of an outcome, after its commit."""

from typing import TYPE_CHECKING, Any

from harness.core import events
from harness.core.failure import Failure
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.reason import Reason
from harness.observe.unalerted import tell
from harness.process.copy import Copy
from harness.store.inbox import Arrival

if TYPE_CHECKING:
    from harness.worker.harness import Harness


def outcome(harness: "Harness", copy: Copy, result: Outcome, seconds: float) -> None:
    """Emit the event of `result`; a subscriber that fails changes nothing."""
    tell_of(harness, _event(result, _who(copy.arrival), seconds))


def tell_of(harness: "Harness", event: events.JobEvent) -> None:
    """Emit it; of a new letter it is noted that it was told."""
    if isinstance(event, events.JobDead):
        tell(harness.database, harness.store, harness.events, event)
    else:
        harness.events.emit(event)


def _who(arrival: Arrival) -> dict[str, Any]:
    return {
        "service": arrival.service,
        "consumer": arrival.consumer,
        "job_id": arrival.job_id,
        "task": arrival.task,
        "correlation_id": arrival.correlation_id,
    }


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


def letter(harness: "Harness", arrival: Arrival, failure: Failure, reason: Reason, letter_id: int) -> None:
    """Tell of the letter of a step that could not be sent."""
    dead = Dead(reason, 0, failure, letter_id)
    tell_of(harness, _event(dead, _who(arrival), 0.0))
