"""What Celery's monitors (Flower, `celery events`) are told of an outcome: one of Celery's own events.

Such a monitor keeps the highest state that it has heard of: SUCCESS, FAILURE, REVOKED, STARTED, RECEIVED. Nothing but a
`task-retried` takes a job back from there. So `task-rejected` is never told: it would leave the job as STARTED, or hide
that it waits.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from harness.core.failure import Failure
from harness.core.message import job_key
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.reason import Reason
from harness.core.text import bounded
from harness.worker.wire import NO_TASK, Wire

#: Bytes of a result or an exception in an event.
LONGEST = 1024


@dataclass(frozen=True, slots=True)
class Event:
    """An event without what the parent adds (the job's id): `type` as Celery names it, `fields` plain values."""

    type: str
    fields: dict[str, Any] = field(default_factory=dict)


#: The job goes on: it waits, or is replayed. Without an exception, so that the last one stays to be seen.
GOES_ON = Event("task-retried")


def event_of(outcome: Outcome, error: BaseException | None, result: str, seconds: float) -> Event | None:
    """The event of `outcome`, None for a conflict: its id is another job's.

    `error` is what the handler raised; `result` is a text, empty where none is known.
    """
    match outcome:
        case Completed() | Duplicate():
            # Of a duplicate most often no result is kept: the monitor goes on showing the first run's.
            return Event("task-succeeded", ({"result": result} if result else {}) | {"runtime": seconds})
        case Deferred(_, delay, failure):
            return Event("task-retried", _failed(error, failure) | {"eta": _in(delay)})
        case Dead(Reason.conflict) | Stale(conflict=True):
            return None
        case Dead(Reason.expired | Reason.revoked as reason, _, failure):
            how = {
                "expired": reason is Reason.expired,
                "terminated": failure.error_type == "Terminated",
                "signum": None,
            }
            return Event("task-revoked", {"exception": _line(error, failure)} | how)
        case Dead(_, _, failure):
            return Event("task-failed", _failed(error, failure))
        case Stale(dead):
            return Event("task-failed") if dead else GOES_ON


def of_message(wire: Wire, event: Event | None) -> Iterator[Event]:
    """The events of a message that was no job's request: what can be read of it, under the id that its letter has."""
    uuid = {"uuid": job_key(wire.says("id"), wire.message.body)}
    task = wire.says("task")
    headers = wire.message.headers
    about = {
        "name": bounded(task, 255) if isinstance(task, str) and task else NO_TASK,
        "args": _text(headers.get("argsrepr")),
        "kwargs": _text(headers.get("kwargsrepr")),
        "retries": retries if type(retries := headers.get("retries")) is int else None,
    }
    yield Event("task-received", uuid | about | {"eta": None, "expires": None})
    if event is not None:
        yield Event(event.type, uuid | event.fields)


def _text(value: Any) -> str | None:
    return bounded(value, LONGEST) if isinstance(value, str) else None


def _failed(error: BaseException | None, failure: Failure) -> dict[str, Any]:
    return {"exception": _line(error, failure), "traceback": failure.traceback or None}


def _line(error: BaseException | None, failure: Failure) -> str:
    try:
        return bounded(repr(error) if error is not None else f"{failure.error_type}({failure.message!r})", LONGEST)
    except Exception:
        return failure.error_type


def _in(delay: float) -> str | None:
    try:
        return (datetime.now(UTC) + timedelta(seconds=delay)).isoformat(timespec="seconds")
    except OverflowError:
        return None
