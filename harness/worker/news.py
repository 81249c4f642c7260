"""What a receiver says of a message that was taken in: it is new, it was known, or it is a conflict."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.core import events
from harness.core.reason import Reason
from harness.receive import Received, ReceiveState
from harness.store.contents import conflict_failure
from harness.store.inbox import Arrival
from harness.worker import announce
from harness.worker.taken import Taken

if TYPE_CHECKING:
    from harness.worker.harness import Harness


def news_of(harness: "Harness", one: Taken, arrival: Arrival, answer: Received) -> Callable[[], None]:
    who: dict[str, Any] = {
        "service": arrival.service,
        "consumer": arrival.consumer,
        "job_id": answer.job_id,
        "task": arrival.task,
        "correlation_id": arrival.correlation_id,
    }
    emit = harness.events.emit
    if answer.letter_id is not None:
        failure = conflict_failure(arrival.job_id, b"", arrival.digest or b"")
        dead = events.JobDead(
            **who,
            attempt=0,
            reason=Reason.conflict,
            letter_id=answer.letter_id,
            error_type=failure.error_type,
            message=failure.message,
            fingerprint=failure.fingerprint,
            traceback="",
        )
        return lambda: announce.tell_of(harness, dead)
    if answer.is_new:
        return lambda: emit(events.MessageReceived(**who, source=one.source.name))
    state = "dead" if answer.state is ReceiveState.conflict else str(answer.state)
    return lambda: emit(events.MessageDuplicate(**who, source=one.source.name, state=state))
